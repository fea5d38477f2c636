"""checkpoint.py -- a diffusers directory of Stable Diffusion 1.5 as one file with the original names.

The names are those of the CompVis code: model.diffusion_model (input_blocks, middle_block, output_blocks),
first_stage_model, cond_stage_model. Three blocks a level count through; the decoder's levels count the other way round.
The VAE's attention is a 1x1 convolution there.
"""

import re

RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}
UNET_ENDS = {
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "conv_in": "input_blocks.0.0",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
}
VAE_ATTENTION = {
    "group_norm": "norm",
    "to_q": "q",
    "to_k": "k",
    "to_v": "v",
    "to_out.0": "proj_out",
    "query": "q",
    "key": "k",
    "value": "v",
    "proj_attn": "proj_out",
}


def resnet(rest):
    part, _, end = rest.partition(".")
    return f"{RESNET[part]}.{end}"


def unet_name(name):
    stem, _, end = name.rpartition(".")
    if stem in UNET_ENDS:
        return f"{UNET_ENDS[stem]}.{end}"
    if m := re.match(r"mid_block\.(resnets|attentions)\.(\d)\.(.*)", name):
        at = 1 if m[1] == "attentions" else 2 * int(m[2])
        return f"middle_block.{at}." + (m[3] if m[1] == "attentions" else resnet(m[3]))
    m = re.match(r"(down|up)_blocks\.(\d)\.(\w+)\.(\d)\.(.*)", name)
    level, kind, j, rest = int(m[2]), m[3], int(m[4]), m[5]
    if kind == "downsamplers":
        return f"input_blocks.{3 * level + 3}.0.op.{end}"
    if kind == "upsamplers":
        return f"output_blocks.{3 * level + 2}.{1 if level == 0 else 2}.conv.{end}"
    block = f"input_blocks.{3 * level + j + 1}" if m[1] == "down" else f"output_blocks.{3 * level + j}"
    return f"{block}.0.{resnet(rest)}" if kind == "resnets" else f"{block}.1.{rest}"


def vae_name(name):
    name = name.replace("conv_norm_out", "norm_out").replace("conv_shortcut", "nin_shortcut")
    name = re.sub(r"mid_block\.resnets\.(\d)", lambda m: f"mid.block_{int(m[1]) + 1}", name)
    if m := re.match(r"(\w+)\.mid_block\.attentions\.0\.(.*)\.(\w+)", name):
        return f"{m[1]}.mid.attn_1.{VAE_ATTENTION[m[2]]}.{m[3]}"
    name = re.sub(r"down_blocks\.(\d)\.resnets", r"down.\1.block", name)
    name = re.sub(r"down_blocks\.(\d)\.downsamplers\.0", r"down.\1.downsample", name)
    name = re.sub(r"up_blocks\.(\d)\.resnets", lambda m: f"up.{3 - int(m[1])}.block", name)
    return re.sub(r"up_blocks\.(\d)\.upsamplers\.0", lambda m: f"up.{3 - int(m[1])}.upsample", name)


def write(model, out):
    from safetensors.numpy import load_file, save_file

    if out.exists():
        return
    tensors = {}
    for name, x in load_file(model / "unet" / "diffusion_pytorch_model.safetensors").items():
        tensors["model.diffusion_model." + unet_name(name)] = x
    for name, x in load_file(model / "vae" / "diffusion_pytorch_model.safetensors").items():
        name = vae_name(name)
        if ".attn_1." in name and x.ndim == 2:
            x = x[:, :, None, None]
        tensors["first_stage_model." + name] = x
    for name, x in load_file(model / "text_encoder" / "model.safetensors").items():
        tensors["cond_stage_model.transformer." + name] = x
    save_file(tensors, str(out) + ".part")
    (out.parent / (out.name + ".part")).rename(out)

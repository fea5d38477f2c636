#!/usr/bin/env python3
"""Makes the small models and goldens of tests/data that the reference set has only in sizes too big to copy.

    python3 -m venv VENV && VENV/bin/pip install torch diffusers transformers
    VENV/bin/python tools/reference/make_small.py [MODEL...]

Two diffusers directories with pseudo-random fp16 weights, sd1-small (four levels, convolution projections) and xl-small
(two text encoders, text_time), with the vocabulary of tests/data/tokenizer/emoji by links; and embedded, a link to
assets/model as it is. For each a set of whole pipeline calls, computed by diffusers in float32 on a CPU from exactly those fp16 values: start noise, final latents, picture. The
cases go into tests/data/manifest.json beside those that tools/make_test_data.py copies. Weights follow the rule of
reference/hashed_weights.py: norms 1 + u/8, biases u/8, matrices uniform with variance 1/fan_in.
"""

import json
import math
import pathlib
import shutil
import sys
import zlib

import diffusers
import torch
import transformers
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
TOKENIZER = ROOT / "tests" / "data" / "tokenizer" / "emoji"
BETAS = dict(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", num_train_timesteps=1000, steps_offset=1)
PROMPT = dict(prompt="a red fox beside a blue car", negative_prompt="blurry, low quality")


def clip(cls, width, layers, heads, act, projection):
    config = transformers.CLIPTextConfig(
        vocab_size=4096, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers, num_attention_heads=heads,
        max_position_embeddings=32, hidden_act=act, projection_dim=projection, bos_token_id=4094, eos_token_id=4095,
        pad_token_id=4095)
    return getattr(transformers, cls)(config)


def vae(channels, groups, scaling, **more):
    n = len(channels)
    return diffusers.AutoencoderKL(
        in_channels=3, out_channels=3, down_block_types=["DownEncoderBlock2D"] * n, up_block_types=["UpDecoderBlock2D"] * n,
        block_out_channels=channels, layers_per_block=1, latent_channels=4, norm_num_groups=groups, sample_size=64,
        scaling_factor=scaling, **more)


def parts(name):
    """The networks of a model, before their weights."""
    if name == "sd1-small":
        return dict(
            unet=diffusers.UNet2DConditionModel(
                sample_size=8, in_channels=4, out_channels=4, block_out_channels=[8, 16, 24, 24], layers_per_block=2,
                down_block_types=["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"],
                up_block_types=["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3, attention_head_dim=4, cross_attention_dim=16,
                norm_num_groups=8),
            vae=vae([8, 16, 16, 16], 4, 0.18215), text_encoder=clip("CLIPTextModel", 16, 4, 4, "quick_gelu", 16))
    return dict(
        unet=diffusers.UNet2DConditionModel(
            sample_size=8, in_channels=4, out_channels=4, block_out_channels=[8, 16, 16], layers_per_block=2,
            down_block_types=["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
            up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"], attention_head_dim=[1, 2, 4],
            cross_attention_dim=40, transformer_layers_per_block=[1, 1, 2], norm_num_groups=4, use_linear_projection=True,
            addition_embed_type="text_time", addition_time_embed_dim=8, projection_class_embeddings_input_dim=6 * 8 + 20),
        vae=vae([8, 8, 16, 16], 4, 0.13025, force_upcast=True), text_encoder=clip("CLIPTextModel", 16, 3, 2, "quick_gelu", 16),
        text_encoder_2=clip("CLIPTextModelWithProjection", 24, 4, 4, "gelu", 20))


def fill(module, part):
    """Deterministic weights, rounded to fp16 and back."""
    for name, p in sorted(module.named_parameters()):
        g = torch.Generator().manual_seed(zlib.crc32(f"{part}/{name}".encode()))
        u = torch.rand(p.shape, generator=g) * 2 - 1
        if p.dim() == 1:
            u = u / 8 + (1 if name.endswith("weight") else 0)
        else:
            u = u * math.sqrt(3 / math.prod(p.shape[1:]))
        p.data.copy_(u.half().float())
    return module.eval().requires_grad_(False)


def write_model(name, modules):
    folder = DATA / "models" / name
    shutil.rmtree(folder, ignore_errors=True)
    index = {"_class_name": "StableDiffusionXLPipeline" if "text_encoder_2" in modules else "StableDiffusionPipeline",
             "scheduler": ["diffusers", "EulerDiscreteScheduler"]}
    for part, module in modules.items():
        (folder / part).mkdir(parents=True)
        tensors = {k: v.half().contiguous() for k, v in module.state_dict().items() if "position_ids" not in k}
        if part.startswith("text_encoder"):
            prefix = "" if any(k.startswith("text_model.") for k in tensors) else "text_model."
            tensors = {prefix + k: v for k, v in tensors.items()}
            config = {**module.config.to_dict(), "architectures": [type(module).__name__]}
            index[part] = ["transformers", type(module).__name__]
            index[part.replace("text_encoder", "tokenizer")] = ["transformers", "CLIPTokenizer"]
            link_tokenizer(folder / part.replace("text_encoder", "tokenizer"))
        else:
            config = dict(module.config)
            index[part] = ["diffusers", type(module).__name__]
        stem = "model" if part.startswith("text") else "diffusion_pytorch_model"
        save_file(tensors, folder / part / f"{stem}.safetensors")
        write_json(folder / part / "config.json", config)
    scheduler = diffusers.EulerDiscreteScheduler(**BETAS)
    (folder / "scheduler").mkdir()
    write_json(folder / "scheduler" / "scheduler_config.json", scheduler_config(scheduler))
    write_json(folder / "model_index.json", index)
    return scheduler


def scheduler_config(scheduler):
    """As a published file has it: without the list of keys that were not given, which from_config would drop."""
    return {"_class_name": type(scheduler).__name__, **{k: v for k, v in scheduler.config.items() if not k.startswith("_")}}


def link_tokenizer(folder):
    folder.mkdir()
    for file in ("vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / file).symlink_to(pathlib.Path("../../../tokenizer/emoji") / file)


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, sort_keys=True, default=str) + "\n")


def sd_cases():
    def case(scheduler, overrides=None, steps=4, seed=1, **call):
        call = {**PROMPT, "num_inference_steps": steps, "guidance_scale": 7.5, "height": 64, "width": 64, **call}
        return dict(model="sd1-small", seed=seed, call=call, scheduler=[scheduler, overrides or {}])

    cases = {f"small-{key}": case(cls, over, seed=i) for i, (key, (cls, over)) in enumerate({
        "ddim": ("DDIMScheduler", dict(clip_sample=False)), "ddpm": ("DDPMScheduler", dict(clip_sample=False)),
        "pndm": ("PNDMScheduler", dict(skip_prk_steps=True)), "lms": ("LMSDiscreteScheduler", {}),
        "euler-beta": ("EulerDiscreteScheduler", dict(use_beta_sigmas=True)),
        "euler-exponential": ("EulerDiscreteScheduler", dict(use_exponential_sigmas=True)),
        "euler-a": ("EulerAncestralDiscreteScheduler", {}), "heun": ("HeunDiscreteScheduler", {}),
        "dpm2": ("KDPM2DiscreteScheduler", {}), "dpmpp2s": ("DPMSolverSinglestepScheduler", {}),
        "dpmpp2m-karras": ("DPMSolverMultistepScheduler", dict(use_karras_sigmas=True)),
        "dpmpp2m-sde": ("DPMSolverMultistepScheduler", dict(algorithm_type="sde-dpmsolver++")),
        "unipc": ("UniPCMultistepScheduler", {}), "deis": ("DEISMultistepScheduler", {}),
    }.items())}
    cases["small-lcm"] = case("LCMScheduler", dict(clip_sample=False), guidance_scale=1.0)
    cases["small-eta"] = case("DDIMScheduler", dict(clip_sample=False), eta=0.7)
    cases["small-clipskip"] = case("EulerDiscreteScheduler", clip_skip=2)
    cases["small-rescale"] = case("EulerDiscreteScheduler", dict(timestep_spacing="trailing"), guidance_rescale=0.6, guidance_scale=9.0)
    cases["small-wide"] = case("EulerDiscreteScheduler", height=40, width=104)
    cases["small-v-zero-snr"] = case("DDIMScheduler", dict(clip_sample=False, prediction_type="v_prediction",
                                                           rescale_betas_zero_snr=True, timestep_spacing="trailing"),
                                     guidance_scale=2.0)
    # Late timesteps would divide the network's rounding errors by sqrt(1 - alpha), 0.03 at the last one, and the latents
    # are the guided prediction itself: a large scale would multiply them.
    cases["small-sample"] = case("DDIMScheduler", dict(clip_sample=False, prediction_type="sample", timestep_spacing="trailing"), steps=2, guidance_scale=2.0)
    cases["small-two"] = case("DDIMScheduler", dict(clip_sample=False), num_images_per_prompt=2)
    return cases


def xl_cases():
    def case(seed, **call):
        return dict(model="xl-small", seed=seed, scheduler=["EulerDiscreteScheduler", {}],
                    call={**PROMPT, "num_inference_steps": 4, "guidance_scale": 5.0, "height": 64, "width": 64, **call})

    no_negative = case(3)
    del no_negative["call"]["negative_prompt"]
    return {"small-xl": case(1, height=48, width=80), "small-xl-noguidance": case(2, guidance_scale=1.0), "small-xl-no-negative": no_negative,
            "small-xl-two-prompts": case(4, prompt_2="a drawing", negative_prompt_2="colour"), "small-xl-clipskip": case(5, clip_skip=1),
            "small-xl-sizes": case(6, original_size=[512, 768], crops_coords_top_left=[8, 16], target_size=[96, 64])}


def embedded_cases():
    def case(seed, prompt, height=256, width=256, negative_prompt="", **call):
        return dict(model="embedded", seed=seed, call=dict(prompt=prompt, negative_prompt=negative_prompt,
                    num_inference_steps=20, guidance_scale=2.0, height=height, width=width, **call))

    return {"embedded-cat": case(5, "a cat", 384, 256), "embedded-negative": case(1, "a red apple on a blue background", negative_prompt="a green pear"),
            "embedded-native": case(2, "a red fox on a blue background", 512, 512),
            "embedded-wide": case(3, "a dog and a house on a yellow background", 128, 320),
            "embedded-long": case(4, "three cherries, " * 40, 128, 128)}


def run(name, case, pipe, base):
    cls, overrides = case.get("scheduler", [base["_class_name"], {}])
    pipe.scheduler = getattr(diffusers, cls).from_config({**base, **overrides, "_class_name": cls})
    call = {k: tuple(v) if isinstance(v, list) else v for k, v in case["call"].items()}
    count = call.get("num_images_per_prompt", 1)
    factor = 2 ** (len(pipe.vae.config.block_out_channels) - 1)
    start = torch.Generator("cpu").manual_seed(case["seed"])
    noise = torch.randn((count, pipe.unet.config.in_channels, call["height"] // factor, call["width"] // factor), generator=start)
    generator = torch.Generator("cpu").manual_seed(case["seed"])
    latents = pipe(**call, generator=generator, output_type="latent").images
    generator = torch.Generator("cpu").manual_seed(case["seed"])
    images = pipe(**call, generator=generator, output_type="pil").images
    folder = DATA / "golden" / "e2e"
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"noise.0": noise, "latents": latents.float().contiguous()}, folder / f"{name}.safetensors")
    from PIL import Image
    sheet = Image.new("RGB", (images[0].width * len(images), images[0].height))
    for i, image in enumerate(images):
        sheet.paste(image, (i * image.width, 0))
    sheet.save(folder / f"{name}.png")
    print(f"{name:28s} latents {latents.std():.2f}")


def hashed_pipeline(model):
    """A pipeline of pseudo-random weights, which are written as well."""
    modules = {part: fill(module, f"{model}/{part}") for part, module in parts(model).items()}
    scheduler = write_model(model, modules)
    tokenizers = {p.replace("text_encoder", "tokenizer"): transformers.CLIPTokenizer.from_pretrained(TOKENIZER)
                  for p in modules if p.startswith("text_encoder")}
    for part, module in modules.items():
        if part.startswith("text_encoder") and not hasattr(module, "text_model"):
            object.__setattr__(module, "text_model", module)  # transformers 5 dropped the level that diffusers' clip_skip reads
    cls = diffusers.StableDiffusionXLPipeline if model == "xl-small" else diffusers.StableDiffusionPipeline
    extra = dict(add_watermarker=False) if model == "xl-small" else dict(safety_checker=None, feature_extractor=None, requires_safety_checker=False)
    return cls(**modules, **tokenizers, scheduler=scheduler, **extra)


def main():
    torch.set_num_threads(1)
    cases = {"sd1-small": sd_cases, "xl-small": xl_cases, "embedded": embedded_cases}
    for model in sys.argv[1:] or cases:
        manifest = json.loads((DATA / "manifest.json").read_text())
        manifest = {k: v for k, v in manifest.items() if v["case"]["model"] != model}
        if model == "embedded":
            pipe = diffusers.StableDiffusionPipeline.from_pretrained(DATA / "models" / model, torch_dtype=torch.float32)
        else:
            pipe = hashed_pipeline(model)
        pipe.set_progress_bar_config(disable=True)
        base = scheduler_config(pipe.scheduler)
        for name, case in cases[model]().items():
            run(name, case, pipe, base)
            manifest[f"golden/e2e/{name}.safetensors"] = {"case": case}
        (DATA / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()

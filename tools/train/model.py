"""The three networks of the default model, in diffusers' and transformers' classes, and how they begin.

AutoencoderKL, 512x512 -> 16x16x16. Its encoder's two finest levels are exact 2x2 averages (fixed weights), so that
latents of a picture come from its 4x4 averages alone (encode_small): a sixteenth of the work for training and for
caching latents, and the decoder learns to bring the sharp edges back. All residual branches begin at zero. The norms
have one group, and the trunk's channels carry a constant +-K that dominates what the norms measure: flat colours
survive them, and a crop is decoded like a whole picture.

UNet2DConditionModel on 16x16/8x8/4x4, CLIPTextModel with three layers. The text is padded to 80 positions, and the 64
after its longest usual end see all of it: they learn to hold what is to be drawn in each eighth by eighth of the
picture (train.py text), so that the UNet's attention finds what belongs where.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel

VAE_CHANNELS = (16, 16, 24, 48, 96, 96)
LATENT, K = 16, 1.0
UNET_CHANNELS = (64, 96, 128)
HIDDEN, LAYERS, WIDE = 192, 3, 1024
FIRST, GRID = 16, 8              # positions of the text from FIRST on, always after it, hold a GRID x GRID map of the picture
LENGTH = FIRST + GRID * GRID
SCHEDULE = dict(num_train_timesteps=1000, beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear",
                prediction_type="v_prediction", rescale_betas_zero_snr=True, timestep_spacing="trailing",
                clip_sample=False, set_alpha_to_one=True, steps_offset=1)


def make_vae():
    n = len(VAE_CHANNELS)
    vae = AutoencoderKL(in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * n,
                        up_block_types=("UpDecoderBlock2D",) * n, block_out_channels=VAE_CHANNELS, layers_per_block=1,
                        latent_channels=LATENT, norm_num_groups=1, sample_size=512, scaling_factor=1.0,
                        mid_block_add_attention=False)
    begin_vae(vae)
    return vae


@torch.no_grad()
def begin_vae(vae):
    for m in vae.modules():
        if isinstance(m, nn.GroupNorm):
            m.weight.fill_(K)
    for half in (vae.encoder, vae.decoder):
        for m in half.modules():
            if hasattr(m, "conv_shortcut"):                              # a residual block
                m.conv2.weight.zero_(), m.conv2.bias.zero_()
                constant(m.conv1, torch.zeros(m.conv1.in_channels))
    averages(vae.encoder)
    last_norm(vae.encoder.conv_norm_out)
    nn.init.dirac_(vae.quant_conv.weight), vae.quant_conv.bias.zero_()
    vae.quant_conv.weight[LATENT:].mul_(0.1)
    vae.quant_conv.bias[LATENT:].fill_(-5)
    nn.init.dirac_(vae.post_quant_conv.weight), vae.post_quant_conv.bias.zero_()
    begin_decoder(vae.decoder)


def begin_decoder(d):
    """The trunk mixes channels at random and interpolates bilinearly ([1 2 1]/4 on nearest neighbours)."""
    nn.init.kaiming_normal_(d.conv_in.weight, nonlinearity="linear")
    const = constant(d.conv_in, torch.zeros(LATENT))
    tent = torch.tensor([0.25, 0.5, 0.25])
    for block in d.up_blocks:
        const = shortcut(block.resnets[0], const)
        if block.upsamplers:
            conv = block.upsamplers[0].conv
            conv.weight.zero_(), conv.bias.zero_()
            for i in range(conv.out_channels):
                conv.weight[i, i] = tent[:, None] * tent
    last_norm(d.conv_norm_out)


@torch.no_grad()
def begin_encoder(vae, patches):
    """Begins with the principal components of patches [N,3,8,8] (of 4x4 averages): trunk and last convolution are linear.

    Two downsamplings gather 2x2 neighbours into channels, 3 -> 12 -> 48; the third projects 4x48 on 96 components.
    """
    e, c2 = vae.encoder, VAE_CHANNELS[4]
    x = patches.reshape(-1, 3, 2, 2, 2, 2, 2, 2)                         # c, then y's bits 4 2 1, then x's
    x = x.permute(0, 2, 5, 3, 6, 4, 7, 1).reshape(len(patches), 192)     # bits y4 x4 y2 x2 y1 x1, then c
    mean = x.mean(0)
    values, vectors = torch.linalg.eigh((x - mean).T @ (x - mean) / len(x))
    std = (values.flip(0).clamp_min(1e-8) * float(values[-1])).pow(0.25)[:c2]  # spreads fall as the square roots of theirs
    W = vectors.flip(1).T[:c2] / std[:, None]                            # [96,192]
    const = signs(VAE_CHANNELS[1])
    const[:3] = 0
    for i, gathered in ((2, 3), (3, 12), (4, 48)):
        block = e.down_blocks[i]
        nn.init.dirac_(block.resnets[0].conv_shortcut.weight)
        const = constant(block.resnets[0].conv_shortcut, const)
        conv = block.downsamplers[0].conv
        conv.weight.zero_()
        for p in range(4):
            y, z = divmod(p, 2)
            if i < 4:
                for c in range(gathered):
                    conv.weight[p * gathered + c, c, y, z] = 1
            else:
                conv.weight[:, :48, y, z] = W[:, 48 * p:48 * p + 48]
        const = constant(conv, const)
        if i == 4:
            conv.bias.sub_(W @ mean)
    slope, height = 1.041, 1.226                                         # of SiLU at 1.5
    e.conv_out.weight.zero_(), e.conv_out.bias.zero_()
    for j in range(LATENT):
        e.conv_out.weight[j, j, 1, 1] = 1 / slope
        e.conv_out.bias[j] = -height / slope


def signs(n):
    return K * torch.tensor([1.0, -1.0]).repeat(n // 2)


def constant(conv, const_in):
    """Sets the bias so that inputs of const_in give +-K (far from the border); returns that."""
    out = signs(conv.out_channels)
    conv.bias.copy_(out - conv.weight.sum((2, 3)) @ const_in)
    return out


def shortcut(resnet, const):
    if resnet.conv_shortcut is None:
        return const
    nn.init.kaiming_normal_(resnet.conv_shortcut.weight, nonlinearity="linear")
    return constant(resnet.conv_shortcut, const)


def last_norm(norm):
    norm.bias.copy_(1.5 - signs(norm.num_channels))                      # back to no constant, in SiLU's near-linear part


def averages(e):
    """The encoder's levels at 512 and 256 pixels: red, green, blue in channels 0..2, averaged 2x2 twice."""
    c = VAE_CHANNELS[0]
    e.conv_in.weight.zero_()
    for i in range(3):
        e.conv_in.weight[i, i, 1, 1] = 1
    e.conv_in.bias.copy_(signs(c))
    e.conv_in.bias[:3] = 0
    for block in e.down_blocks[:2]:
        conv = block.downsamplers[0].conv
        conv.weight.zero_(), conv.bias.zero_()
        for i in range(c):
            conv.weight[i, i, :2, :2] = 0.25
        for p in block.parameters():
            p.requires_grad_(False)
    e.conv_in.requires_grad_(False)


def encode_small(vae, x):
    """Moments of the latents from 4x4 averages x [N,3,128,128]; what vae.encode gives for the whole picture."""
    c = VAE_CHANNELS[1]
    h = signs(c).to(x).view(1, c, 1, 1).expand(x.shape[0], c, *x.shape[2:]).clone()
    h[:, :3] = x
    e = vae.encoder
    for block in e.down_blocks[2:]:
        h = block(h)
    h = e.conv_out(F.silu(e.conv_norm_out(e.mid_block(h))))
    return vae.quant_conv(h).chunk(2, 1)                                 # mean, log of variance: [N,16,16,16]


def decode_levels(vae, z, small):
    """Decoder's features: at 128 pixels when small (before that level's upsampling), else the picture."""
    d = vae.decoder
    h = d.mid_block(d.conv_in(vae.post_quant_conv(z)))
    for block in d.up_blocks[:3]:
        h = block(h)
    for r in d.up_blocks[3].resnets:
        h = r(h, None)
    if small:
        return h
    h = d.up_blocks[3].upsamplers[0](h)
    for block in d.up_blocks[4:]:
        h = block(h)
    return d.conv_out(F.silu(d.conv_norm_out(h)))


class Head(nn.Module):
    """Colours from the decoder's features at 128 pixels; only for training."""

    def __init__(self):
        super().__init__()
        c = VAE_CHANNELS[2]
        self.norm, self.conv = nn.GroupNorm(1, c), nn.Conv2d(c, 3, 3, padding=1)
        with torch.no_grad():
            self.norm.weight.fill_(K)
            last_norm(self.norm)

    def forward(self, h):
        return self.conv(F.silu(self.norm(h)))


def make_text(vocabulary):
    return CLIPTextModel(CLIPTextConfig(vocab_size=vocabulary, hidden_size=HIDDEN, intermediate_size=WIDE,
                                        projection_dim=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=6,
                                        max_position_embeddings=LENGTH, hidden_act="quick_gelu",
                                        bos_token_id=vocabulary - 2, eos_token_id=vocabulary - 1, pad_token_id=vocabulary - 1))


def make_unet(channels=UNET_CHANNELS):
    u = UNet2DConditionModel(sample_size=16, in_channels=LATENT, out_channels=LATENT, layers_per_block=1,
                             block_out_channels=channels,
                             down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
                             up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
                             cross_attention_dim=HIDDEN, attention_head_dim=tuple(c // 32 for c in channels), norm_num_groups=16)
    with torch.no_grad():
        for name, p in u.named_parameters():
            if name.startswith("conv_out.") or ".conv2." in name or ".proj_out." in name:
                p.zero_()
            elif name.endswith("weight") and p.dim() == 4:
                if "upsamplers" in name:
                    nn.init.dirac_(p)
                elif ".conv1." not in name and "proj_in" not in name:
                    nn.init.kaiming_normal_(p, nonlinearity="linear")
    return u


class Pointing:
    """Tells the UNet's cross-attention where to look while turned on: each place at the text's position that holds it."""

    def __init__(self, unet):
        self.unet, self.usual, self.found, self.on = unet, unet.attn_processors, [], False

    def turn(self, on):
        if on != self.on:
            self.on = on
            self.unet.set_attn_processor({k: self if on and ".attn2." in k else v for k, v in self.usual.items()})

    def missed(self):
        """Mean negative log of the attention to the right position, since last asked."""
        found, self.found = self.found, []
        return sum(found) / len(found) if found else torch.zeros(())

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, **_):
        n, places, _ = hidden_states.shape
        q, k, v = attn.to_q(hidden_states), attn.to_k(encoder_hidden_states), attn.to_v(encoder_hidden_states)
        q, k, v = (x.view(n, -1, attn.heads, x.shape[-1] // attn.heads).transpose(1, 2) for x in (q, k, v))
        logs = (attn.scale * q @ k.transpose(-1, -2)).log_softmax(-1)
        side = int(places ** 0.5)
        y, x = torch.arange(places) // side, torch.arange(places) % side
        for head in range(attn.heads):                                   # at 4x4 each head looks at another quarter
            f, part = GRID // side, head % (GRID // side) ** 2
            to = FIRST + (f * y + part // f) * GRID + f * x + part % f
            self.found.append(-logs[:, head, torch.arange(places), to].mean())
        return attn.to_out[0]((logs.exp() @ v).transpose(1, 2).reshape(n, places, -1))


def scheduler():
    return DDIMScheduler(**SCHEDULE)


def tokens(tokenizer, texts, length=LENGTH):
    return tokenizer(texts, padding="max_length", max_length=length, truncation=True, return_tensors="pt").input_ids

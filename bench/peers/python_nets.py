"""python_nets.py -- the peers that are Python modules: diffusers on torch, and OpenVINO.

Both are the same three functions (text, unet, decode) on numpy arrays, so that one loop makes the picture and one
takes the times. torch modules are used as diffusers gives them; OpenVINO's are converted from these with
openvino.convert_model, static shapes, latency hint. Their files are float32: with half ones the time embedding's
frequencies are rounded, too, and the latents are off by 9e-3.
"""

import statistics
import time

import common


def load_torch(model, dtype):
    import diffusers
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(common.threads())
    torch.set_grad_enabled(False)
    args = {"torch_dtype": dtype, "local_files_only": True}
    return (
        transformers.CLIPTextModel.from_pretrained(model / "text_encoder", **args).eval(),
        diffusers.UNet2DConditionModel.from_pretrained(model / "unet", **args).eval(),
        diffusers.AutoencoderKL.from_pretrained(model / "vae", **args).eval(),
    )


class Torch:
    def __init__(self, folder, precision):
        import torch

        self.torch = torch
        self.version = torch.__version__
        self.dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[precision]
        self.clip, self.net, self.vae = load_torch(folder / "model", self.dtype)

    def _in(self, x):
        return self.torch.from_numpy(x).to(self.dtype)

    def text(self, ids):
        return self.clip(self.torch.from_numpy(ids))[0].float().numpy()

    def unet(self, x, t, context):
        return self.net(self._in(x), self.torch.tensor(t), self._in(context)).sample.float().numpy()

    def decode(self, x):
        return self.vae.decode(self._in(x)).sample.float().numpy()


def export(folder):
    """Writes the three networks as OpenVINO's files; done once."""
    import openvino
    import torch

    out = folder / "openvino"
    if (out / "done").exists():
        return
    out.mkdir(exist_ok=True)
    clip, net, vae = load_torch(folder / "model", torch.float32)
    side = common.SIZE // 8

    class Text(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.clip = clip

        def forward(self, ids):
            return self.clip(ids)[0]

    class Unet(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x, t, context):
            return self.net(x, t, context, return_dict=False)[0]

    class Decode(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.vae = vae

        def forward(self, x):
            return self.vae.decode(x, return_dict=False)[0]

    parts = {
        "text": (Text(), (torch.zeros(2, 77, dtype=torch.int64),)),
        "unet": (Unet(), (torch.zeros(2, 4, side, side), torch.tensor(1.0), torch.zeros(2, 77, 768))),
        "decode": (Decode(), (torch.zeros(1, 4, side, side),)),
    }
    for name, (module, inputs) in parts.items():
        shapes = [list(x.shape) for x in inputs]
        ir = openvino.convert_model(module.eval(), example_input=inputs, input=shapes)
        openvino.save_model(ir, out / f"{name}.xml", compress_to_fp16=False)
    (out / "done").touch()


def openvino_default():
    """The precision that OpenVINO takes on this CPU when it is not told."""
    import numpy
    import openvino
    from openvino import opset13

    x = opset13.parameter([1, 8], numpy.float32)
    core = openvino.Core()
    net = core.compile_model(openvino.Model([opset13.relu(x)], [x]), "CPU")
    kind = str(net.get_property("INFERENCE_PRECISION_HINT"))
    return "bf16" if "bf16" in kind or "bfloat16" in kind else "f16" if "16" in kind else "f32"


class OpenVino:
    def __init__(self, folder, precision):
        import openvino

        self.version = openvino.get_version().split("-")[0]
        core = openvino.Core()
        config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": common.threads()}
        if precision == "f32":
            config["INFERENCE_PRECISION_HINT"] = "f32"
        self.nets = {
            name: core.compile_model(folder / "openvino" / f"{name}.xml", "CPU", config)
            for name in ("text", "unet", "decode")
        }

    def _run(self, name, *inputs):
        return self.nets[name](list(inputs))[0]

    def text(self, ids):
        return self._run("text", ids)

    def unet(self, x, t, context):
        import numpy

        return self._run("unet", x, numpy.array(t, numpy.float32), context)

    def decode(self, x):
        return self._run("decode", x)


def token_ids(model):
    import numpy
    import transformers

    tokenizer = transformers.CLIPTokenizer.from_pretrained(model / "tokenizer", local_files_only=True)
    ids = tokenizer(
        [common.NEGATIVE, common.PROMPT], padding="max_length", max_length=77, truncation=True, return_tensors="np"
    )
    return ids.input_ids.astype(numpy.int64)


def picture(nets, model, ids):
    """Prompt to (latents, rgb), as diffusers' pipeline does it."""
    import diffusers
    import numpy
    import torch

    scheduler = diffusers.EulerDiscreteScheduler.from_pretrained(model / "scheduler", local_files_only=True)
    scheduler.set_timesteps(common.STEPS)
    context = nets.text(ids)
    side = common.SIZE // 8
    x = torch.randn((1, 4, side, side), generator=torch.Generator("cpu").manual_seed(common.SEED))
    x = x * scheduler.init_noise_sigma
    for t in scheduler.timesteps:
        both = torch.cat([scheduler.scale_model_input(x, t)] * 2).numpy()
        without, with_prompt = torch.from_numpy(nets.unet(both, float(t), context)).chunk(2)
        x = scheduler.step(without + common.GUIDANCE * (with_prompt - without), t, x).prev_sample
    image = nets.decode((x / 0.18215).numpy())[0].transpose(1, 2, 0)
    rgb = numpy.rint(numpy.clip(image / 2 + 0.5, 0, 1) * 255).astype(numpy.uint8)
    return context, x.numpy(), rgb


def seconds(f):
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def reference(folder):
    """torch in float32, for check(); done once."""
    import numpy

    if (folder / "reference.npz").exists():
        return
    model = folder / "model"
    _, latents, rgb = picture(Torch(folder, "f32"), model, token_ids(model))
    numpy.savez(folder / "reference.tmp.npz", latents=latents, rgb=rgb)
    (folder / "reference.tmp.npz").rename(folder / "reference.npz")


def measure(kind, folder, precision, default):
    """One record. `default`: the precision that was not asked for but taken."""
    import numpy

    model = folder / "model"
    nets = Torch(folder, precision) if kind == "torch" else OpenVino(folder, None if default else precision)
    ids = token_ids(model)
    context, latents, rgb = picture(nets, model, ids)  # the warm-up, too
    peak = common.own_peak()
    side = common.SIZE // 8
    x = numpy.concatenate([latents] * 2)
    return {
        "version": nets.version,
        "text_seconds": statistics.median(seconds(lambda: nets.text(ids)) for _ in range(3)),
        "step_seconds": seconds(lambda: nets.unet(x, 500.0, context)),
        "decode_seconds": seconds(lambda: nets.decode(latents / numpy.float32(0.18215))),
        "peak_bytes": peak,
        **common.check(folder, latents, rgb, precision),
    }

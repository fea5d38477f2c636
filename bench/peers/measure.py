"""measure.py FOLDER GEN WHAT -- one runtime, measured and checked once, in a process of its own; one JSON line.

WHAT is prepare (what every measurement needs, once), list (the names for this CPU), or a name from that list.
"""

import json
import pathlib
import sys

import common
import programs
import python_nets


def names():
    """What is alternated, then what is measured once."""
    flags = common.cpu_flags()
    fast = ["tessera", "openvino-f32"]
    default = python_nets.openvino_default()
    if default != "f32":
        fast.append(f"openvino-{default}-default")
    once = ["tessera-80M", "torch-f32"]
    if flags & {"avx512_bf16", "amx_bf16"}:
        once.append("torch-bf16")
    return {"alternated": fast, "once": once + ["sdcpp-f16", "sdcpp-f32"]}


def prepare(folder):
    import checkpoint

    python_nets.export(folder)
    checkpoint.write(folder / "model", folder / "model.safetensors")
    python_nets.reference(folder)


def main():
    folder, gen, what = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    kind, _, rest = what.partition("-")
    precision = rest.split("-")[0]
    if what == "prepare":
        prepare(folder)
        return
    if what == "list":
        print(json.dumps(names()))
        return
    if kind == "tessera":
        record = programs.tessera(folder, gen, rest or None, "f16")
        precision = "f16"
    elif kind == "sdcpp":
        record = programs.sdcpp(folder, precision)
    else:
        record = python_nets.measure(kind, folder, precision, rest.endswith("default"))
    common.emit({"name": what, "precision": precision, "threads": common.threads(), "cpu": common.cpu_name(), **record})


if __name__ == "__main__":
    main()

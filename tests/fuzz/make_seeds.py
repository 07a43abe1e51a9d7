#!/usr/bin/env python3
"""Writes tests/fuzz/seeds again: small inputs of every kind that the fuzz targets know, sound ones and near misses.

What an input of a target looks like stands at the head of its NAME_fuzz.cpp.
"""
import json
import pathlib
import shutil
import struct

HERE = pathlib.Path(__file__).resolve().parent
SEEDS = HERE / "seeds"


def write(target, name, data):
    folder = SEEDS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def tensors(*entries):
    """The JSON of a safetensors header and the bytes of its data, from (name, dtype, shape, bytes)."""
    header, end = {}, 0
    for name, dtype, shape, size in entries:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    return header, end


def safetensors():
    kinds = {
        "plain": tensors(("a", "F32", [2, 2], 16), ("b", "BF16", [3], 6)),
        "empty": ({}, 0),
        "scalar_and_none": tensors(("s", "F64", [], 8), ("n", "I8", [0, 4], 0), ("m", "F16", [0], 0)),
        "every_dtype": tensors(*[(d, d, [8], size) for d, size in [
            ("BOOL", 8), ("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6), ("U8", 8), ("I8", 8), ("F8_E5M2", 8),
            ("F8_E4M3", 8), ("F8_E8M0", 8), ("F8_E4M3FNUZ", 8), ("F8_E5M2FNUZ", 8), ("I16", 16), ("U16", 16),
            ("F16", 16), ("BF16", 16), ("I32", 32), ("U32", 32), ("F32", 32), ("C64", 64), ("F64", 64), ("I64", 64),
            ("U64", 64)]]),
    }
    metadata = {"__metadata__": {"format": "pt", "note": "x"}, **kinds["plain"][0]}
    kinds["metadata"] = (metadata, kinds["plain"][1])
    kinds["overflow"] = tensors(("a", "F32", [1 << 62, 4], 16))
    kinds["hole"] = ({"a": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}}, 3)
    overlap = {"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
               "b": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}}
    kinds["overlap"], kinds["overlap_filled"] = (overlap, 3), (overlap, 4)
    for name, (header, size) in kinds.items():
        text = json.dumps(header).encode()
        write("safetensors", name + ".header", b"\0" + struct.pack("<Q", size) + text)
        write("safetensors", name + ".file", b"\1" + struct.pack("<Q", len(text)) + text + bytes(size))
    write("safetensors", "huge.file", b"\1" + struct.pack("<Q", 1 << 63) + b"{}")
    write("safetensors", "lfs.file", b"\1version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")


def json_texts():
    texts = {
        "every_kind": '{"a": [1, -2, 18446744073709551615, 1.5e-3, true, null], "b": {"c": "\\u00e9\\ud83d\\ude00"}}',
        "comment": '// a\n{"a": 1} // b\n',
        "non_finite": "[NaN, Infinity, -Infinity]",
        "mark": "\ufeff[]",
        "duplicate": '{"a": 1, "a": 2, "b": {"c": 1, "c": 1}}',
        "deep": "[" * 60 + "]" * 60,
        "too_deep": '{"a":' * 80,
        "surrogate": '"\\ud800"',
        "numbers": "[1e999, -0, 0.1e+5, 01, 1., .5, 9223372036854775808, -9223372036854775809]",
        "comma": "[1,]",
    }
    for name, text in texts.items():
        write("json", name + ".strict", b"\0" + text.encode())
        write("json", name + ".lenient", b"\x4e" + text.encode())


    for most, options in ((4, 0x20), (64, 0)):
        for depth in (most, most + 1):
            write("json", f"depth_{depth}", bytes([options]) + b"[" * depth + b"]" * depth)
    for size in (64, 65):
        write("json", f"bytes_{size}", b"\x10" + b'"' + b"x" * (size - 2) + b'"')


def index():
    maps = {
        "sound": {"metadata": {"total_size": 8}, "weight_map": {"x": "a.safetensors", "z": "b.safetensors"}},
        "not_held": {"weight_map": {"z": "a.safetensors"}},
        "absent": {"weight_map": {"x": "c.safetensors"}},
        "broken": {"weight_map": {"x": "broken.safetensors"}},
        "outside": {"weight_map": {"x": "../outside.safetensors"}},
        "empty": {"weight_map": {}},
        "number": {"weight_map": {"x": 1}},
        "none": {},
    }
    for name, value in maps.items():
        write("safetensors_index", name, json.dumps(value).encode())


def idx(lengths, dtype, size, documents=None, pointers=None, version=1, modes=b""):
    if pointers is None:
        pointers = [sum(lengths[:i]) * size for i in range(len(lengths))]
    if documents is None:
        documents = range(len(lengths) + 1)
    documents = list(documents)
    return (b"MMIDIDX\0\0" + struct.pack("<QBQQ", version, dtype, len(lengths), len(documents)) +
            struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(pointers)}q", *pointers) +
            struct.pack(f"<{len(documents)}q", *documents) + modes)


def megatron():
    sizes = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2}
    for code, size in sizes.items():
        write("megatron", f"dtype_{code}", struct.pack("<H", 5 * size) + idx([2, 0, 3], code, size))
    write("megatron", "floats", struct.pack("<H", 20) + idx([2, 3], 7, 4))
    write("megatron", "modes", struct.pack("<H", 10) + idx([2, 3], 8, 2, modes=b"\0\1"))
    write("megatron", "empty", struct.pack("<H", 0) + idx([], 8, 2))
    write("megatron", "short_documents", struct.pack("<H", 10) + idx([2, 3], 8, 2, documents=[0, 1]))
    write("megatron", "past_the_end", struct.pack("<H", 8) + idx([2, 3], 8, 2))
    write("megatron", "swapped", struct.pack("<H", 10) + idx([2, 3], 8, 2, pointers=[6, 0]))
    write("megatron", "wraps", struct.pack("<H", 0) + idx([], 8, 2).replace(struct.pack("<QQ", 0, 1),
                                                                            struct.pack("<QQ", 0, 2**61 + 1)))
    write("megatron", "version_2", struct.pack("<H", 10) + idx([2, 3], 8, 2, version=2))


def header(start, *values):
    data = start + struct.pack(f"<{len(values)}i", *values)
    return data + bytes(1024 - len(data))


def tokens():
    ids = range(10)
    narrow, wide = struct.pack("<10H", *ids), struct.pack("<10i", *ids)
    files = {
        "gpt2": (1, header(b"", 20240520, 1, 10) + narrow),
        "llama3": (1, header(b"", 20240801, 7, 10) + wide),
        "llmq_1": (2, header(b"BIN.TOK\n", 1, 4, 10) + wide),
        "llmq_2": (2, header(b"BIN.TOK\n", 2, 4, 10, 100, 0) + wide),
        "llmq_mask": (2, header(b"BIN.TOK\n", 2, 4, 10, 100, 1) + wide + b"\xf1\x03"),
        "nanogpt": (3, narrow),
        "bytes": (4, narrow),
        "model": (1, header(b"", 20240326, 3, 10)),
    }
    for name, (code, data) in files.items():
        write("tokens", name + ".named", bytes([code, 0]) + data)
        if len(data) >= 1024:
            write("tokens", name + ".short", bytes([128, 2]) + data[:32] + data[1024:])


def configs():
    for path in (HERE.parent / "golden").glob("*.config.json"):
        write("hf_config", path.name.removesuffix(".config.json"), path.read_bytes())
    llama = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    more = {
        "defaults": {"model_type": "gpt2"},
        "dtypes": {**llama, "torch_dtype": "float32", "dtype": "torch.float16"},
        "legacy_rope": {**llama, "rope_scaling": {"type": "linear", "factor": 2.0}},
        "both_ropes": {**llama, "rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters":
                       {"rope_theta": 1e6, "rope_type": "linear", "factor": 2}},
        "nulls": {**llama, "head_dim": None, "num_key_value_heads": None, "rope_scaling": None},
        "quantised": {**llama, "quantization_config": {"quant_method": "fp8"}},
        "largest": {"model_type": "llama", "hidden_size": 1 << 20, "num_attention_heads": 4096,
                    "head_dim": 4096, "intermediate_size": 1 << 24, "vocab_size": 1 << 28, "num_hidden_layers": 64},
    }
    for name, value in more.items():
        write("hf_config", name, json.dumps(value).encode())


if __name__ == "__main__":
    shutil.rmtree(SEEDS, ignore_errors=True)
    for make in (safetensors, json_texts, index, megatron, tokens, configs):
        make()

#!/usr/bin/env python3
"""Random models of every family, made by transformers: in and out of Tandem again, and back into transformers.

    check_round_trip.py FOLDER [--only PART]

Models: tests/golden/*.config.json and a small SmolLM, each stored in bf16, fp32 and fp16 by save_pretrained; further ones in
shards, as links into a cache, with a stored head beside a tied embedding, and GPT-2 under the hub's own names. None has a weight
of zero, so that a step at a learning rate of 1e-30 rounds back to where it was. For each, one step of `tandem train` without
decay
  in the dtype of the files: names, shapes, dtypes and bytes of all tensors are those of the input, transformers gives the
    checkpoint exactly the loss that it gives the input, and `tandem eval` one as near as LOSS_WITHIN;
  in another dtype: names and shapes are those of the input, every value is the input's, rounded to the dtype of the training;
and the input's files are, byte for byte and link for link, as they were, also where the run's folder is the model's. Where the
program has `export`, the same holds of its folders. One line for each model; then the counts. Status 1 if anything failed. FOLDER
is replaced. TANDEM: the program, else build/release/tandem.
"""
import argparse
import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
TANDEM = os.environ.get("TANDEM", os.path.join(ROOT, "build/release/tandem"))
LENGTH, WINDOWS, TOKENS = 77, 4, 250  # of the data; ids below TOKENS
SMOLLM = dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=256, hidden_size=72, intermediate_size=192,
              num_hidden_layers=3, num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=256, rope_theta=100000,
              rms_norm_eps=1e-5, tie_word_embeddings=True, rope_scaling=None, eos_token_id=[0, 2], pad_token_id=None)
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float16": torch.float16}
ANOTHER = {"bfloat16": "float32", "float32": "bfloat16", "float16": "bfloat16"}
# Relative: that of parity_model_test.cpp, which knows how far transformers itself is from double in each dtype.
LOSS_WITHIN = {"bfloat16": 1.3e-3, "float32": 1e-6, "float16": 2.4e-4}


@dataclass
class Case:
    name: str
    dtype: str
    config: dict
    shape: str = ""  # of the folder: "", "shards", "links", "head", "bare"
    shard: str = "5GB"


def cases() -> list:
    configs = {os.path.basename(path).removesuffix(".config.json"): json.load(open(path))
               for path in sorted(glob.glob(os.path.join(ROOT, "tests/golden/*.config.json")))}
    configs["smollm"] = SMOLLM
    result = [Case(name, dtype, config) for name, config in configs.items() for dtype in DTYPES]
    result += [Case("llama_biases", "bfloat16", configs["llama_biases"], "shards", "40KB"),
               Case("gpt2", "float32", configs["gpt2"], "shards", "60KB"),
               Case("smollm", "bfloat16", configs["smollm"], "links"),
               Case("qwen2_biases", "bfloat16", configs["qwen2_biases"], "head"),
               Case("gpt2", "bfloat16", configs["gpt2"], "bare"), Case("gpt2", "float16", configs["gpt2"], "bare")]
    return result


def need(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def make_model(case: Case, folder: str) -> None:
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(case.config, file)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    with torch.no_grad():
        for parameter in model.parameters():  # biases, too
            if parameter.dim() == 1 and bool((parameter == 1).all()):
                parameter += 0.1 * torch.randn_like(parameter)
            else:
                parameter.normal_(0, 0.1)
            parameter.copy_(torch.where(parameter.abs() < 1e-3, torch.full_like(parameter, 1e-3), parameter))
    shutil.rmtree(folder)
    model.to(DTYPES[case.dtype]).save_pretrained(folder, max_shard_size=case.shard)
    for name in ("tokenizer_config.json", "merges.txt"):  # of no use, but to be kept as they are
        with open(os.path.join(folder, name), "w") as file:
            file.write('{"x":\r\n 1}')
    reshape_folder(case, folder)


def reshape_folder(case: Case, folder: str) -> None:
    weights = os.path.join(folder, "model.safetensors")
    if case.shape in ("head", "bare"):
        tensors = load_file(weights)
        if case.shape == "head":
            tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        else:
            tensors = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
        save_file(tensors, weights, metadata={"format": "pt"})
    if case.shape == "shards":
        need(len(glob.glob(os.path.join(folder, "model-*.safetensors"))) > 2, "the model was not cut into shards")
    if case.shape == "links":
        blobs = os.path.join(os.path.dirname(folder), "blobs")
        os.makedirs(blobs)
        for i, name in enumerate(sorted(os.listdir(folder))):
            os.rename(os.path.join(folder, name), os.path.join(blobs, str(i)))
            os.symlink(f"../blobs/{i}", os.path.join(folder, name))


def write_tokens(path: str) -> torch.Tensor:
    """llm.c's format; returns the windows [WINDOWS, LENGTH + 1] that an evaluation cuts from it."""
    ids = np.random.default_rng(5).integers(0, TOKENS, WINDOWS * LENGTH + 1).astype(np.uint16)
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, len(ids)
    with open(path, "wb") as file:
        file.write(header.tobytes() + ids.tobytes())
    return torch.from_numpy(np.stack([ids[i * LENGTH:i * LENGTH + LENGTH + 1].astype(np.int64) for i in range(WINDOWS)]))


def tandem(*arguments: str) -> str:
    done = subprocess.run([TANDEM, *arguments], capture_output=True, text=True)
    need(done.returncode == 0, f"tandem {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def train(model: str, out: str, tokens: str, dtype: str) -> str:
    """One step that changes nothing; returns the checkpoint's folder."""
    config = {"output_dir": out, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0,
              "bf16": {"enabled": dtype == "bfloat16"}, "fp16": {"enabled": dtype == "float16"},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-30, "weight_decay": 0}}, "model": {"path": model},
              "data": {"train": tokens, "sequence_length": LENGTH}, "train": {"steps": 1}, "device": {"kind": "host"}}
    path = out + ".json"
    with open(path, "w") as file:
        json.dump(config, file)
    end = json.loads(tandem("train", path, "--json"))
    need(end["updates"] == 1 and end["skipped"] == 0, f"{end['updates']} updates, {end['skipped']} skipped")
    return end["checkpoint"]


def tensors_of(folder: str) -> dict:
    index = os.path.join(folder, "model.safetensors.index.json")
    names = ["model.safetensors"]
    if os.path.exists(index):
        with open(index) as file:
            names = sorted(set(json.load(file)["weight_map"].values()))
    return {name: tensor for part in names for name, tensor in load_file(os.path.join(folder, part)).items()}


def rounded(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    """To the dtype of a training: bf16 weights round half away from zero, others to even."""
    wide = tensor.float().numpy()
    if dtype == "bfloat16":
        bits = ((wide.view(np.uint32).astype(np.uint64) + 0x8000) >> 16).astype(np.uint16)
        return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(wide).to(DTYPES[dtype])


def bits_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.dim() else b""


def check_tensors(folder: str, model: str, dtype: str) -> None:
    got, wanted = tensors_of(folder), tensors_of(model)
    need(sorted(got) == sorted(wanted), f"other names: {sorted(set(got) ^ set(wanted))[:4]}")
    for name, tensor in wanted.items():
        need(got[name].shape == tensor.shape, f"{name}: shape {tuple(got[name].shape)}, not {tuple(tensor.shape)}")
        need(got[name].dtype == DTYPES[dtype], f"{name}: {got[name].dtype}, not {dtype}")
        need(bits_of(got[name]) == bits_of(rounded(tensor, dtype)), f"{name}: other bytes")


def check_files_beside(folder: str, model: str, dtype: str, stored: str) -> None:
    for name in os.listdir(model):
        if name.startswith("model"):
            continue
        with open(os.path.join(model, name), "rb") as left, open(os.path.join(folder, name), "rb") as right:
            wanted, got = left.read(), right.read()
        if name == "config.json":
            need(json.loads(got).get("dtype") == dtype, "config.json names another dtype than the weights'")
            wanted = wanted.replace(f'"dtype": "{stored}"'.encode(), f'"dtype": "{dtype}"'.encode())
        need(wanted == got, f"{name} is not as it came")


@torch.no_grad()
def transformers_loss(folder: str, windows: torch.Tensor) -> float:
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", output_loading_info=True)
    problems = {kind: names for kind, names in info.items() if names}
    need(not problems, f"transformers misses or finds too much: {problems}")
    logits = model.eval()(windows[:, :-1]).logits.float()
    return F.cross_entropy(logits.flatten(0, 1).double(), windows[:, 1:].flatten()).item()


def tandem_loss(folder: str, tokens: str, dtype: str) -> float:
    return json.loads(tandem("eval", "--model", folder, "--data", tokens, "--sequence-length", str(LENGTH), "--dtype", dtype,
                             "--json"))["loss"]


def fingerprint(folder: str) -> dict:
    """Every name under the folder: link, or hash and time of the last change."""
    result = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            with open(path, "rb") as file:
                result[path] = (os.path.islink(path) and os.readlink(path), hashlib.sha256(file.read()).hexdigest(),
                                os.stat(path).st_mtime_ns)
    return result


def check_folder(folder: str, case: Case, model: str, dtype: str, loss: float, windows: torch.Tensor) -> None:
    check_tensors(folder, model, dtype)
    check_files_beside(folder, model, dtype, case.dtype)
    again = transformers_loss(folder, windows)
    within = 0 if dtype == case.dtype else LOSS_WITHIN["bfloat16"]
    need(abs(again - loss) <= within * loss, f"{dtype}: transformers' loss is {again}, but {loss} for the input")


def check_case(case: Case, folder: str, tokens: str, windows: torch.Tensor, exports: bool) -> str:
    """What was found, in a few words."""
    model = os.path.join(folder, "model")
    make_model(case, model)
    before = fingerprint(folder)
    loss = transformers_loss(model, windows)
    ours = tandem_loss(model, tokens, case.dtype)
    apart = abs(ours - loss) / loss
    need(apart <= LOSS_WITHIN[case.dtype], f"tandem eval gives {ours}, transformers {loss}")
    other = ANOTHER[case.dtype]
    for dtype in (case.dtype, other):
        checkpoint = train(model, os.path.join(folder, "run_" + dtype), tokens, dtype)
        check_folder(checkpoint, case, model, dtype, loss, windows)
        if dtype == case.dtype:
            need(tandem_loss(checkpoint, tokens, dtype) == ours, "tandem eval gives the checkpoint another loss")
    if exports:
        for name, flags in {"as_stored": [], "in_" + other: ["--dtype", other]}.items():
            out = os.path.join(folder, name)
            tandem("export", model, "--out", out, *flags)
            check_folder(out, case, model, other if flags else case.dtype, loss, windows)
    if case.name == "smollm":  # the run's folder is the model's own
        train(model, model, tokens, case.dtype)
    after = {path: value for path, value in fingerprint(folder).items() if path in before}
    need(after == before, "the input folder was changed")
    return f"loss {loss:.6f}, tandem eval {apart:.3e} apart, trained in {other} too"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--only", default="", help="models whose name holds this")
    args = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order, so that losses can be compared exactly
    transformers.utils.logging.set_verbosity_error()
    folder = os.path.realpath(args.folder)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    tokens = os.path.join(folder, "tokens.bin")
    windows = write_tokens(tokens)
    exports = "\n  export " in tandem("--help")
    failed, done, start = 0, 0, time.monotonic()
    for case in cases():
        name = "_".join(filter(None, (case.name, case.dtype, case.shape)))
        if args.only not in name:
            continue
        done += 1
        try:
            print(f"ok    {name}: {check_case(case, os.path.join(folder, name), tokens, windows, exports)}", flush=True)
            shutil.rmtree(os.path.join(folder, name))
        except Exception as error:  # a miss is noted, and the rest still runs
            failed += 1
            text = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
            print(f"FAIL  {name}: {text}", flush=True)
    print(f"{done} models, {failed} failed, {'with' if exports else 'without'} tandem export, {time.monotonic() - start:.0f} s")
    sys.exit(1 if failed or not done else 0)


if __name__ == "__main__":
    main()

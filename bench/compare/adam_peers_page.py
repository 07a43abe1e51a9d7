"""The rows and the page of adam_peers.py, from the seconds that it measured."""
import statistics

BASE = "fp32+fp32"
TITLES = {"deepspeed": "DeepSpeed", "torch": "PyTorch"}
# What of a peer's step is counted, by the passes that adam_peers_worker.py names.
COUNTED = {
    "deepspeed": {"its Adam alone": ["step"], "unscale, Adam, cast": ["unscale", "step", "cast"],
                  "convert, unscale, Adam, cast": ["convert", "unscale", "step", "cast"]},
    "torch": {"fused AdamW alone": ["step"], "fused AdamW, cast": ["step", "cast"],
              "convert, fused AdamW, cast": ["convert", "step", "cast"]},
}
# Bytes per parameter: read, written, and fetched only to be overwritten (the lines of a plane that is written, but not read).
BYTES = {"convert": (2, 4, 4), "unscale": (4, 4, 0), "step": (16, 12, 0), "cast": (4, 2, 2)}

NOTES = """\
Every side starts from bf16 gradients and ends with bf16 weights: {parameters:,} parameters, AdamW, masters in fp32 and moments in
fp32 but where a format's name says otherwise. Tandem does it in one pass, which writes the weights over the gradients. All have
their memory in 2 MiB pages where the system gives them.

**DeepSpeed** {deepspeed}: what the CPU does for ZeRO-Offload in bf16 (`runtime/zero/stage_1_and_2.py`), by the same calls on planes
of the same types. `unscale_and_clip_grads` multiplies the fp32 gradient (`mul_`; not made where clipping is off and the loss scale
is 1), `DeepSpeedCPUAdam.step` updates, and the masters are copied into the bf16 buffer (`copy_` into
`param_buffer_of_bit16_for_cpu_offload_groups`). Stage 3 makes the same three passes. With a GPU the gradient is converted and its
norm computed there, and it crosses the link in fp32: 4 bytes, where Tandem's takes 2. So "unscale, Adam, cast" is the CPU step as
it runs, and "convert, ..." what it costs from the gradient that Tandem starts from, by one `copy_` (on a device without memory of
its own, DeepSpeed makes two passes of it).

**PyTorch** {torch}: `torch.optim.AdamW(fused=True)` with masters and gradients in fp32, and `copy_` from and to bf16. It neither
unscales nor clips; Tandem's pass does both.

Where the difference comes from: bytes per parameter between memory and cores, counted from each side's passes. "Fetched" are lines
that are read only because they are about to be overwritten, as by any ordinary store to a plane that isn't read. Where memory is
the limit, times are as these sums; a side that takes longer is held up by its arithmetic, or by too few requests in flight.
"""


def quartiles(values: list) -> list:
    return statistics.quantiles(values, n=4, method="inclusive")


def series(result: dict, threads: int) -> dict:
    """Row: seconds round by round; a peer has a row for each choice of passes."""
    out = {}
    for side, values in result["seconds"][threads].items():
        if side in COUNTED:
            for what, passes in COUNTED[side].items():
                out[f"{TITLES[side]}: {what}"] = [sum(value[key] for key in passes) for value in values]
        else:
            name, *again = side.split(" ")
            out[" ".join([f"Tandem `{name}`", *again])] = values
    return out


def bytes_of(result: dict) -> dict:
    """Row: (read, written, fetched) per parameter."""
    out = {f"Tandem `{name}`": (each["read"], each["written"], 0) for name, each in result["about"]["tandem"]["bytes"].items()}
    for side, counted in COUNTED.items():
        if side not in result["missing"]:
            for what, passes in counted.items():
                out[f"{TITLES[side]}: {what}"] = tuple(sum(BYTES[key][k] for key in passes) for k in range(3))
    return out


def rows(result: dict) -> list:
    parameters = result["about"]["tandem"]["parameters"]
    out = []
    for threads in result["seconds"]:
        all_series = series(result, threads)
        base = all_series[f"Tandem `{BASE}`"]
        for row, values in all_series.items():
            ratios = [a / b for a, b in zip(values, base)]
            out.append(dict(threads=threads, row=row, ns_per_param=[round(1e9 * q / parameters, 4) for q in quartiles(values)],
                            over_base=[round(q, 4) for q in quartiles(ratios)]))
    return out


def ratio(values: list, digits: int = 2) -> str:
    low, middle, high = values
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def times_table(result: dict) -> list:
    out = [f"| threads | side | ns per parameter | time over that of `{BASE}` |", "|---|---|---|---|"]
    for row in result["rows"]:
        out.append(f"| {row['threads']} | {row['row']} | {ratio(row['ns_per_param'], 3)} | {ratio(row['over_base'])} |")
    return out + [f"| | {TITLES[name]} | left out | {reason} |" for name, reason in result["missing"].items()]


def speedups(result: dict) -> list:
    out = []
    for threads in result["seconds"]:
        all_series = series(result, threads)
        peers = {row: values for row, values in all_series.items() if not row.startswith("Tandem")}
        if not peers:
            return []
        if not out:
            out = ["| threads | format | " + " | ".join(peers) + " |", "|---" * (len(peers) + 2) + "|"]
        for row, own in all_series.items():
            if row in peers or row.endswith("again"):
                continue
            cells = [ratio(quartiles([a / b for a, b in zip(values, own)])) for values in peers.values()]
            out.append(f"| {threads} | {row.removeprefix('Tandem ')} | " + " | ".join(cells) + " |")
    return out


def bytes_table(result: dict) -> list:
    out = ["| side | read | written | fetched | sum |", "|---|---|---|---|---|"]
    for row, (read, written, fetched) in bytes_of(result).items():
        out.append(f"| {row} | {read:g} | {written:g} | {fetched:g} | {read + written + fetched:g} |")
    return out


def page(result: dict) -> str:
    about = result["about"]
    versions = {name: "(left out)" for name in TITLES} | {
        name: about[name]["versions"][name] for name in TITLES if name in about}
    lines = [
        "# The Adam pass beside DeepSpeed's and PyTorch's", "",
        f"Command: `{result['command']}`; machine: {result['machine']}, {about['tandem']['isa']}, load average {result['load']} before.",
        f"{result['starts']} times {result['rounds']} rounds; medians, with quartiles in brackets; ratios are of times of one round.",
        f"`{BASE}` again, after the peers, over that at the start of the round (A/A) is the noise.", "",
        *times_table(result), ""]
    table = speedups(result)
    if table:
        lines += ["How many times as long the peers take as Tandem in each format:", "", *table, ""]
    lines += [NOTES.format(parameters=about["tandem"]["parameters"], **versions), *bytes_table(result)]
    return "\n".join(lines) + "\n"

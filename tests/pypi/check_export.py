#!/usr/bin/env python3
"""Loads a Tandem checkpoint folder in transformers, as anyone would, and prints its loss (check_eval.py says how).

    check_export.py CHECKPOINT DATA [check_eval.py's flags]

Fails if a tensor is missing, left over or of another shape, if weights are not finite, or if its tokenizer does not load.
"""
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from check_eval import DTYPES, parser, report

if __name__ == "__main__":
    arguments = parser(__doc__).parse_args()
    model, info = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=DTYPES[arguments.dtype], output_loading_info=True)
    problems = {kind: names for kind, names in info.items() if names}
    assert not problems, f"the folder does not fit the model: {problems}"
    assert all(torch.isfinite(p).all() for p in model.parameters()), "weights that are not finite"
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    assert tokenizer.decode(tokenizer.encode("In the beginning", add_special_tokens=False)) == "In the beginning"
    report(arguments, model)

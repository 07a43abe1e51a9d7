"""What the scripts of this folder share: where the tree is, on what they ran, how their results are written."""
import json
import os
import platform

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))


def machine() -> str:
    model = platform.machine()
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), model)
    return f"{len(os.sched_getaffinity(0))} cores of {model}"


def write(out: str, result: dict, page: str) -> None:
    """OUT.json and OUT.md; the page is printed, too."""
    os.makedirs(os.path.dirname(out) or ".", exist_ok=True)
    with open(out + ".json", "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    with open(out + ".md", "w") as file:
        file.write(page)
    print(page, end="")

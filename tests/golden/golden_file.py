"""The golden file format. A text header of lines, then raw little-endian arrays in the header's order, without padding:

    tandem-golden 1
    set KEY VALUE              what the model is (VALUE: a word or a number)
    array NAME TYPE COUNT      f64, f32 or i32; NAME holds no blank
    end

The byte after "end\\n" is the first of the first array. tests/offload/golden_file.cpp reads it.
"""
import numpy as np

TYPES = {"f64": "<f8", "f32": "<f4", "i32": "<i4"}


class GoldenWriter:
    def __init__(self) -> None:
        self.lines, self.payload = ["tandem-golden 1"], []

    def set(self, key: str, value) -> None:
        self.lines.append(f"set {key} {value}")

    def array(self, name: str, kind: str, values) -> None:
        data = np.ascontiguousarray(np.asarray(values).reshape(-1), dtype=TYPES[kind])
        self.lines.append(f"array {name} {kind} {data.size}")
        self.payload.append(data.tobytes())

    def write(self, path: str) -> int:
        blob = ("\n".join(self.lines + ["end"]) + "\n").encode() + b"".join(self.payload)
        with open(path, "wb") as file:
            file.write(blob)
        return len(blob)

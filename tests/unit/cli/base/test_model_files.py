"""What is told of the files that a command is given."""

from __future__ import annotations

from pathlib import Path

from tunefarm.cli.base.model_files import options_for


def test_proposed_options_are_for_their_file_alone() -> None:
    message = "give the shape of every open input; it runs with: --shape input=1,512 --value 'sr=16000'"
    assert options_for(Path("nets/vad.onnx"), message).endswith(
        "with: --shape vad.onnx:input=1,512 --value vad.onnx:'sr=16000'"
    )
    assert "--shape 'my vad.onnx:'input=1,512" in options_for(Path("my vad.onnx"), message)

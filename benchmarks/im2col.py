"""Compare direct convolution with im2col and a matrix product: the best kernels after equally many trials.

    taskset -c 1 env TVM_NUM_THREADS=1 python -m benchmarks.im2col --trials 64 > table.md

The product is a 1x1 convolution over rows that hold a pixel's whole neighbourhood, with the bias and ReLU that follow fused onto
it; writing those rows is a kernel of its own, by its default schedule and not searched. Weights are packed for both. One thread.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.defaults import time_kernel
from benchmarks.search.machine import one_core_target
from benchmarks.search.markdown import print_table
from benchmarks.tail_tiles import int64s, search, tensor, workload
from tvm import te, tirx, topi

from tunefarm_tuning.tvm.tasks.extract import as_kernel
from tunefarm_tuning.workload.task import TuningTask, Workload

_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A convolution, channels last.

    Attributes:
        size: Height and width of the input.
        channels: Of the input and the output.
        kernel: Its height and width.
        stride: Of both.
        dilation: Of both.
        batch: How many images.
    """

    size: int
    channels: tuple[int, int]
    kernel: tuple[int, int] = (3, 3)
    stride: int = 1
    dilation: int = 1
    batch: int = 1

    @property
    def out_size(self) -> tuple[int, int]:
        """Height and width of the result."""
        high, wide = (
            (self.size + 2 * self._pad(taps) - self.dilation * (taps - 1) - 1) // self.stride + 1
            for taps in self.kernel
        )
        return high, wide

    @property
    def inner(self) -> int:
        """Elements of a pixel's neighbourhood."""
        return self.kernel[0] * self.kernel[1] * self.channels[0]

    def direct(self) -> Workload:
        """Return the convolution with bias and ReLU."""
        data, pads = self._data(), [self._pad(taps) for taps in self.kernel]
        weight = tensor("weight", *self.kernel, *self.channels)
        return _fused(data, weight, topi.nn.conv2d_nhwc(data, weight, self.stride, pads * 2, self.dilation))

    def product(self) -> Workload:
        """Return the product of gathered rows and weights, with bias and ReLU."""
        data = tensor("rows", self.batch, *self.out_size, self.inner)
        weight = tensor("weight", 1, 1, self.inner, self.channels[1])
        return _fused(data, weight, topi.nn.conv2d_nhwc(data, weight, 1, 0, 1))

    def gather(self) -> tirx.PrimFunc:
        """Return the kernel that writes the rows."""
        data, inner = self._data(), self.channels[0]
        below, right = (self._pad(taps) for taps in self.kernel)
        padded = topi.nn.pad(data, [0, below, right, 0]) if below or right else data

        def element(n: Any, y: Any, x: Any, i: Any, j: Any, channel: Any) -> Any:
            return padded[
                n, y * self.stride + i * self.dilation, x * self.stride + j * self.dilation, channel
            ]

        # The same bytes as rows of `inner` elements, with axes that need no division.
        rows = te.compute(int64s((self.batch, *self.out_size, *self.kernel, inner)), element, name="rows")
        func = te.create_prim_func([data, rows])
        return func.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)

    def gathered_bytes(self) -> int:
        """Return how much the rows take."""
        high, wide = self.out_size
        return _FLOAT_BYTES * self.batch * high * wide * self.inner

    def _data(self) -> Any:
        return tensor("data", self.batch, self.size, self.size, self.channels[0])

    def _pad(self, taps: int) -> int:
        return self.dilation * (taps - 1) // 2


def _fused(data: Any, weight: Any, product: Any) -> Workload:
    bias = tensor("bias", 1, 1, 1, int(weight.shape[3]))
    return workload([data, weight, bias, topi.nn.relu(topi.add(product, bias))], weight=1)


FORMS: dict[str, Form] = {
    "3x3 / 2, 64 to 128, 56²": Form(size=56, channels=(64, 128), stride=2),
    "3x3 / 2, 128 to 256, 28²": Form(size=28, channels=(128, 256), stride=2),
    "3x3 / 2, 256 to 512, 14²": Form(size=14, channels=(256, 512), stride=2),
    "3x3, 512, 7²": Form(size=7, channels=(512, 512)),
    "3x3, 512, 7², batch 8": Form(size=7, channels=(512, 512), batch=8),
    "3x3, dilation 2, 256, 28²": Form(size=28, channels=(256, 256), dilation=2),
    "7x7 / 2, 3 to 64, 224²": Form(size=224, channels=(3, 64), kernel=(7, 7), stride=2),
    "3x3 / 2, 3 to 32, 224²": Form(size=224, channels=(3, 32), stride=2),
    "5x5, 48 to 128, 27²": Form(size=27, channels=(48, 128), kernel=(5, 5)),
    "1x7, 192, 17²": Form(size=17, channels=(192, 192), kernel=(1, 7)),
    "3x3 / 2, 192 to 320, 17²": Form(size=17, channels=(192, 320), stride=2),
    "3x3, 13 to 37, 31²": Form(size=31, channels=(13, 37)),
}


def measure(name: str, trials: int, seed: int, folder: Path) -> list[str]:
    """Return a line of the table."""
    form = FORMS[name]
    workloads = form.direct(), form.product()
    latencies = [
        search(
            TuningTask(workload=workload, target=one_core_target(), weight=1),
            tails=True,
            trials=trials,
            seed=seed,
        )[0]
        for workload in workloads
    ]
    direct, product = latencies
    gather = time_kernel(as_kernel("gather", form.gather(), 1), folder, default_schedules=True)
    gflops = workloads[0].flops / 1e9
    return [
        name,
        f"{1e6 * direct:,.0f} ({gflops / direct:.0f})",
        f"{1e6 * product:,.0f} ({gflops / product:.0f})",
        f"{1e6 * gather:,.0f} ({2 * form.gathered_bytes() / 1e9 / gather:.0f})",
        f"{product / direct:.2f}×",
        f"{(product + gather) / direct:.2f}×",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=list(FORMS), metavar="FORM")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    head = [
        "Convolution",
        "Direct, µs (GFLOPS)",
        "Product, µs (GFLOPS)",
        "Rows, µs (GB/s)",
        "Product alone",
        "With its rows",
    ]
    with tempfile.TemporaryDirectory() as folder:
        print_table(
            head, (measure(name, options.trials, options.seed, Path(folder)) for name in options.forms)
        )


if __name__ == "__main__":
    main()

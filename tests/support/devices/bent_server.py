"""The hardened RPC server of a device that changed after it was registered.

What the file that ``BENT_FILE`` names says happens to every single kernel: ``straight`` nothing, ``slow`` it runs twice (a clock at
half its speed), ``snail`` it takes a second more (a board of long ago), ``wrong`` it computes nothing, ``crash`` it dies. ``BENT_SHIM`` is `SHIM_SOURCE`, compiled.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tunefarm_workers.device.hardened_server import __main__ as hardened_server
from tunefarm_workers.device.hardened_server import tvm_private

SHIM_SOURCE = """
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef int (*kernel)(void *self, const void *args, int32_t n, void *result);
int __tvm_ffi_main(void *self, const void *args, int32_t n, void *result) {
    static kernel straight;
    if (!straight) straight = (kernel)dlsym(dlopen(getenv("BENT_LIBRARY"), RTLD_NOW), "__tvm_ffi_main");
    if (!strcmp(getenv("BENT"), "wrong")) return 0;
    if (!strcmp(getenv("BENT"), "crash")) abort();
    if (!strcmp(getenv("BENT"), "snail")) sleep(1);
    else straight(self, args, n, result);
    return straight(self, args, n, result);
}
"""


def serve(descriptor: int, workspace: tvm_private.Workspace) -> None:
    """Stands in for `tvm_private.serve`."""
    import tvm
    from tvm.rpc import server

    server._server_env("", workspace)
    bent = Path(os.environ["BENT_FILE"]).read_text().strip()
    if bent != "straight":

        def load_module(name: str) -> Any:
            path = workspace.relpath(name)
            # Loading it the usual way gives it what it needs of TVM.
            straight = tvm.runtime.load_module(path)
            with suppress(AttributeError):
                straight["vm_load_executable"]
                return straight  # a whole network, which the shim cannot stand in for
            os.environ["BENT"], os.environ["BENT_LIBRARY"] = bent, path
            workspace.libs.append(straight)
            return tvm.runtime.load_module(os.environ["BENT_SHIM"])

        tvm.register_global_func("tvm.rpc.server.load_module", load_module, override=True)
    server._ffi_api.ServerLoop(descriptor)


if __name__ == "__main__":
    tvm_private.serve = serve
    sys.exit(hardened_server.main())

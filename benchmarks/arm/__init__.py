"""64-bit Arm without Arm silicon: machines emulated by QEMU, and LLVM's models of cores."""

@ Where the memory of a thread is (Run-time ABI for the Arm Architecture, "Thread-local storage"): r0 from the register that Linux keeps it in.
@ The program for 32-bit ARM is linked without zig's run-time library, which alone has it: glibc has it in a part that zig leaves out.
    .text
    .arm
    .global __aeabi_read_tp
    .type __aeabi_read_tp, %function
__aeabi_read_tp:
    mrc p15, 0, r0, c13, c0, 3
    bx lr
    .size __aeabi_read_tp, . - __aeabi_read_tp
    .section .note.GNU-stack, "", %progbits

/* The entries: one jump for each of the driver's functions (see entries.h and entries.c). The arguments are not known here, so
 * an entry must leave all registers and the stack as they are, and can only jump.
 *
 * On x86-64 one instruction reads the slot and jumps, so no thread is ever between the two. On aarch64 it takes two
 * instructions, in a restartable sequence (rseq): the kernel sends a thread that was preempted there back to the beginning.
 * Until a slot is opened, and while calls are blocked, it leads to `gate_slow`, which returns to the entry, to run it from
 * its beginning. */
#include "driver/entries.h"
#ifdef __CET__
#include <cet.h>
#else
#define _CET_ENDBR
#endif

    .file "entries.S" /* otherwise the library contains the name of a temporary file, different each time */
    .section .note.GNU-stack, "", %progbits

#if defined(__x86_64__)

    .macro ENTRY
    .p2align 4
    _CET_ENDBR
    jmp *(gate_slots + 8 * number)(%rip)
    .endm

    .macro SLOW
    .p2align 4
    _CET_ENDBR
    pushq $number
    jmp gate_slow_common
    .endm

    .text
gate_slow_common:
    .cfi_startproc
    .cfi_def_cfa_offset 16
    pushq %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_offset %rbp, -24
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    subq $200, %rsp
    movq %rdi, 0(%rsp)
    movq %rsi, 8(%rsp)
    movq %rdx, 16(%rsp)
    movq %rcx, 24(%rsp)
    movq %r8, 32(%rsp)
    movq %r9, 40(%rsp)
    movq %rax, 48(%rsp)
    movq %r10, 56(%rsp)
    movups %xmm0, 64(%rsp)
    movups %xmm1, 80(%rsp)
    movups %xmm2, 96(%rsp)
    movups %xmm3, 112(%rsp)
    movups %xmm4, 128(%rsp)
    movups %xmm5, 144(%rsp)
    movups %xmm6, 160(%rsp)
    movups %xmm7, 176(%rsp)
    movq 8(%rbp), %rdi
    movq %rsp, %rsi
    call gate_slow
    movq %rax, %r11
    movq 0(%rsp), %rdi
    movq 8(%rsp), %rsi
    movq 16(%rsp), %rdx
    movq 24(%rsp), %rcx
    movq 32(%rsp), %r8
    movq 40(%rsp), %r9
    movq 48(%rsp), %rax
    movq 56(%rsp), %r10
    movups 64(%rsp), %xmm0
    movups 80(%rsp), %xmm1
    movups 96(%rsp), %xmm2
    movups 112(%rsp), %xmm3
    movups 128(%rsp), %xmm4
    movups 144(%rsp), %xmm5
    movups 160(%rsp), %xmm6
    movups 176(%rsp), %xmm7
    leave
    .cfi_def_cfa %rsp, 16
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    jmp *%r11
    .cfi_endproc

#elif defined(__aarch64__)

    .macro ENTRY
    .p2align 4
    mov w17, #number
    b gate_through
    .endm

    .macro SLOW
    .p2align 4
    mov w17, #number
    b gate_slow_common
    .endm

    .macro INTERNAL symbol
    .globl \symbol
    .hidden \symbol
\symbol:
    .endm

    .text
/* Jump through the slot of number w17. x15 to x17 are free: they carry no argument. */
    .p2align 6
    .type gate_through, %function
INTERNAL gate_through
    .cfi_startproc
    adrp x16, gate_rseq
    ldr x16, [x16, :lo12:gate_rseq]
    mrs x15, tpidr_el0
    cbz x16, unknown
    add x15, x15, x16
    ldr w16, [x15, #4] /* cpu_id: negative if this thread's area is not registered */
    tbnz w16, #31, unrestartable
    adrp x16, restart
    add x16, x16, :lo12:restart
    str x16, [x15, #8] /* rseq_cs */
begin:
    adrp x16, gate_slots
    add x16, x16, :lo12:gate_slots
    ldr x16, [x16, w17, uxtw #3]
    br x16
INTERNAL gate_through_end
    .inst 0xd428bc00 /* RSEQ_SIG: the kernel requires it before the abort address */
anew:
    b gate_through
unknown: /* before the C library's area was looked for no slot is read; gate_slow does so */
    adrp x15, gate_looked
    add x15, x15, :lo12:gate_looked
    ldar w16, [x15]
    cbz w16, gate_slow_common
    adrp x15, gate_rseq
    ldr x16, [x15, :lo12:gate_rseq]
    cbnz x16, gate_through
unrestartable:
    adrp x15, gate_unrestartable
    ldr w16, [x15, :lo12:gate_unrestartable]
    cbnz w16, begin
    mov w16, #1
    str w16, [x15, :lo12:gate_unrestartable]
    b begin
    .cfi_endproc
    .size gate_through, . - gate_through

    /* struct rseq_cs. Threads keep pointing to it for long, which is safe as the gate is never unloaded. */
    .section .data.rel.ro, "aw", %progbits
    .p2align 5
restart:
    .4byte 0, 0
    .8byte begin, gate_through_end - begin, anew

    .text
    .type gate_slow_common, %function
gate_slow_common:
    .cfi_startproc
    stp x29, x30, [sp, #-224]!
    .cfi_def_cfa_offset 224
    .cfi_offset 29, -224
    .cfi_offset 30, -216
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80]
    stp q0, q1, [sp, #96]
    stp q2, q3, [sp, #128]
    stp q4, q5, [sp, #160]
    stp q6, q7, [sp, #192]
    mov w0, w17
    add x1, sp, #16
    bl gate_slow
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldr x8, [sp, #80]
    ldp q0, q1, [sp, #96]
    ldp q2, q3, [sp, #128]
    ldp q4, q5, [sp, #160]
    ldp q6, q7, [sp, #192]
    ldp x29, x30, [sp], #224
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    br x16
    .cfi_endproc

#else
#error "The gate is for x86-64 and aarch64."
#endif

/* --- the entries -------------------------------------------------------------------------------------------------- */

    .p2align 6
    .globl gate_entries
    .hidden gate_entries
    .type gate_entries, %function
    .set number, 0
gate_entries:
    .cfi_startproc

    .macro NAMED symbol
    .p2align 4
    .globl \symbol
    .type \symbol, %function
\symbol:
    ENTRY
    .size \symbol, . - \symbol
    .set number, number + 1
    .endm

#define F(base, suffix, ...) NAMED base##suffix;
#include FUNCTIONS
#undef F

    .rept SPARES + STUBS
    ENTRY
    .set number, number + 1
    .endr

    .p2align 4
    .cfi_endproc
    .size gate_entries, . - gate_entries

/* --- where they lead before they are opened ----------------------------------------------------------------------- */

    .set entries, number
    .set number, 0
    .p2align 6
    .globl gate_blocked
    .hidden gate_blocked
    .type gate_blocked, %function
gate_blocked:
    .rept entries
    SLOW
    .set number, number + 1
    .endr
    .p2align 4
    .size gate_blocked, . - gate_blocked

    .data
    .p2align 6
    .globl gate_slots
    .hidden gate_slots
    .type gate_slots, %object
    .set number, 0
gate_slots:
    .rept entries
    .8byte gate_blocked + ENTRY_SIZE * number
    .set number, number + 1
    .endr
    .size gate_slots, . - gate_slots

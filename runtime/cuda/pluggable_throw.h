/* pluggable_throw.h: torch's exceptions, thrown from C.
 *
 * If an allocator returns NULL, torch makes a tensor of it, so a request that fails
 * has to throw. torch's exceptions are C++ classes, and this library is C, so that
 * neither a C++ compiler nor torch is needed to build it. What it takes to make such
 * an exception belongs to the platform's C++ ABI. It is looked up in the process, by
 * symbols whose names change if a layout changes that is relied on here. */
#ifndef STPLAN_PLUGGABLE_THROW_H
#define STPLAN_PLUGGABLE_THROW_H

#include <stddef.h>

typedef enum {
  SP_THROW_OUT_OF_MEMORY, /* torch.OutOfMemoryError */
  SP_THROW_ERROR          /* RuntimeError */
} sp_throw_class;

/* sp_throw_prepare looks everything up, once, in a process that has loaded
 * torch. 0 if something is missing; then error, a buffer of `size` bytes, says
 * what, and sp_throw must not be called. */
int sp_throw_prepare(char *error, size_t size);

/* sp_throw throws and does not return. Every C frame up to torch's has to be
 * compiled with -fexceptions, and must hold no lock. */
_Noreturn void sp_throw(sp_throw_class class, const char *message);

#endif

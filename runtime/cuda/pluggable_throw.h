/* pluggable_throw.h: torch's exceptions, thrown from C.
 *
 * An allocator that answers torch with NULL gets a tensor made of it: to fail is
 * to throw. The classes are C++, and this library is not, so that it needs
 * neither a compiler for C++ nor torch to be built. What it takes to make one is
 * part of the platform's C++ ABI: it is looked up in the process, by names that
 * change where a layout that is relied on here does. */
#ifndef STPLAN_PLUGGABLE_THROW_H
#define STPLAN_PLUGGABLE_THROW_H

#include <stddef.h>

typedef enum {
  SP_THROW_OUT_OF_MEMORY, /* torch.OutOfMemoryError */
  SP_THROW_ERROR          /* RuntimeError */
} sp_throw_class;

/* sp_throw_prepare looks everything up, once, in a process that has loaded
 * torch. 0 where something is missing; then error, a buffer of `size` bytes,
 * says what, and nothing may be thrown. */
int sp_throw_prepare(char *error, size_t size);

/* sp_throw does not return. Every C frame up to torch's has to be compiled with
 * -fexceptions, and hold no lock. */
_Noreturn void sp_throw(sp_throw_class class, const char *message);

#endif

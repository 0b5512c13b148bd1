/* Included before the shim, so that it runs with the libstdc++ that its release of torch asks for,
 * of GCC 4.8 or newer, although it is compiled with the headers of a newer one. Those call
 * functions that an older library lacks: here are the ones that the shim needs, hidden, made of
 * functions that every library has. packaging/shims.py looks for others. */
#pragma once

/* Templates that newer libraries have compiled are compiled into the shim. */
#include <bits/c++config.h>
#undef _GLIBCXX_EXTERN_TEMPLATE
#define _GLIBCXX_EXTERN_TEMPLATE 0

#include <bits/functexcept.h>
#include <exception>
#include <new>

extern "C" {
void stplan_copy_exception(void *to, const void *from) asm("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void stplan_drop_exception(void *pointer) asm("_ZNSt15__exception_ptr13exception_ptrD1Ev");

/* GLIBCXX_3.4.29. It throws the base of what it should, bad_array_new_length, which is of
 * CXXABI_1.3.8. */
__attribute__((visibility("hidden"), used)) [[noreturn]] void stplan_throw_bad_length() asm("_ZSt28__throw_bad_array_new_lengthv");
void stplan_throw_bad_length() { throw std::bad_alloc(); }

/* GLIBCXX_3.4.20. What it says is the format, without the numbers. */
__attribute__((visibility("hidden"), used)) [[noreturn]] void stplan_throw_out_of_range(const char *format, ...) asm("_ZSt24__throw_out_of_range_fmtPKcz");
void stplan_throw_out_of_range(const char *format, ...) { std::__throw_out_of_range(format); }

/* CXXABI_1.3.13: inline members of exception_ptr call these two, where older headers call
 * the copy constructor and the destructor. A copy that is never dropped holds a reference. */
__attribute__((visibility("hidden"), used)) void stplan_hold_exception(void *pointer) noexcept asm("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void stplan_hold_exception(void *pointer) noexcept {
  void *copy;
  stplan_copy_exception(&copy, pointer);
}
__attribute__((visibility("hidden"), used)) void stplan_release_exception(void *pointer) noexcept asm("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void stplan_release_exception(void *pointer) noexcept { stplan_drop_exception(pointer); }
}

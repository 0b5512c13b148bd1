#define _POSIX_C_SOURCE 200809L

#include "pluggable_throw.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* c10::SourceLocation, and libstdc++'s std::string. The string of the C++ ABI
 * before C++11, which torch's packages have up to 2.6, is one pointer;
 * libstdc++ itself makes it. */
typedef struct {
  const char *function, *file;
  uint32_t line;
} location;

typedef union {
  struct {
    char *data;
    size_t length;
    size_t capacity; /* of data; a short string has 16 bytes here instead, which is not used */
    size_t unused;
  } cxx11;
  char *before;
} string;

/* Bytes: at least the size of any c10::Error, which is 128 in torch 2.11. */
enum { EXCEPTION_BYTES = 1024 };

/* A virtual table begins with two words, the offset to the top and the type. An
 * object points behind them. */
enum { VTABLE_HEADER = 2 };

static struct {
  void *(*allocate)(size_t);
  void (*throw)(void *object, void *type, void (*destructor)(void *));
  void *(*new)(size_t);
  void (*construct)(void *self, location at, string *message);
  void (*make_string)(string *self, const char *text, const void *allocator); /* before C++11; NULL otherwise */
  void **out_of_memory;
  void (*check_fail)(const char *function, const char *file, uint32_t line, const char *message);
} cxx;

/* library is a library that the process has loaded already, or NULL. */
static void *library(const char *name) { return dlopen(name, RTLD_NOW | RTLD_NOLOAD); }

int sp_throw_prepare(char *error, size_t size) {
  void *c10 = library("libc10.so"), *c10_cuda = library("libc10_cuda.so");
  if (c10 == NULL || c10_cuda == NULL) {
    snprintf(error, size, "torch's %s is not loaded in this process", c10 == NULL ? "libc10.so" : "libc10_cuda.so");
    return 0;
  }
#define ERROR_OF(string) "_ZN3c105ErrorC1ENS_14SourceLocationE" string
  /* c10::Error::Error(c10::SourceLocation, std::string) of either ABI */
  const char *error_of = ERROR_OF("NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
  const int before = dlsym(c10, error_of) == NULL && dlsym(c10, ERROR_OF("Ss")) != NULL;
  const struct {
    void *from;
    const char *symbol;
    void *to;
  } wanted[] = {
      {c10, "__cxa_allocate_exception", &cxx.allocate},
      {c10, "__cxa_throw", &cxx.throw},
      {c10, "_Znwm", &cxx.new},
      {c10, before ? ERROR_OF("Ss") : error_of, &cxx.construct},
      /* std::string::string(const char *, const std::allocator<char> &) */
      {before ? c10 : NULL, "_ZNSsC1EPKcRKSaIcE", &cxx.make_string},
      /* the virtual table of c10::OutOfMemoryError, which lies in libc10.so
       * from torch 2.13 on */
      {c10_cuda, "_ZTVN3c1016OutOfMemoryErrorE", &cxx.out_of_memory},
      /* c10::detail::torchCheckFail(const char *, const char *, uint32_t, const char *) */
      {c10, "_ZN3c106detail14torchCheckFailEPKcS2_jS2_", &cxx.check_fail},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    if (wanted[i].from == NULL)
      continue; /* it is not needed with this ABI */
    void *found = dlsym(wanted[i].from, wanted[i].symbol);
    if (found == NULL) {
      snprintf(error, size, "this torch does not export %s", wanted[i].symbol);
      return 0;
    }
    memcpy(wanted[i].to, &found, sizeof found);
  }
  return 1;
}

/* make makes a std::string that the exception takes over. */
static void make(string *text, const char *message) {
  const size_t length = strlen(message);
  if (cxx.make_string != NULL) {
    const char allocator = 0; /* an object without state */
    cxx.make_string(text, message, &allocator);
    return;
  }
  text->cxx11.data = cxx.new(length + 1);
  text->cxx11.length = text->cxx11.capacity = length;
  memcpy(text->cxx11.data, message, length + 1);
}

/* throw_out_of_memory builds a c10::OutOfMemoryError as C++ would: a
 * c10::Error, to which that class adds only its type. */
static void throw_out_of_memory(location at, const char *message) {
  string text;
  make(&text, message);
  void *object = cxx.allocate(EXCEPTION_BYTES);
  cxx.construct(object, at, &text);
  void **virtual = cxx.out_of_memory + VTABLE_HEADER;
  memcpy(object, &virtual, sizeof virtual);
  void (*destructor)(void *);
  memcpy(&destructor, virtual, sizeof destructor); /* the first virtual function */
  cxx.throw(object, cxx.out_of_memory[VTABLE_HEADER - 1], destructor);
}

void sp_throw(sp_throw_class class, const char *message) {
  const location at = {"stplan", "stplan", 0};
  if (class == SP_THROW_OUT_OF_MEMORY)
    throw_out_of_memory(at, message);
  else
    cxx.check_fail(at.function, at.file, at.line, message);
  abort(); /* neither returns */
}

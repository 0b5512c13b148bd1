// complete.h: a check that a class overrides every virtual function of torch's allocator
// interface.
#pragma once

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace stplan {

// unanswered returns the name of the first virtual function of the interface that no
// class of this namespace overrides, or "" if there is none. A release of torch may add a
// function with a default implementation: the shim then still compiles, but the default
// would answer in place of the native allocator.
//
// This relies on the C++ ABI. An object begins with a pointer to its virtual table, and
// the table has the interface's functions first. A pointer to a virtual member function
// begins with the byte offset of its entry in the table. So the offset of a function that
// is declared after those of the interface gives the size of their part of the table. An
// entry belongs to the shim if its symbol, which is exported, is in this namespace.
template <typename Interface>
std::string unanswered(const Interface* object) {
  struct Behind : Interface {
    virtual void last() = 0;
  };
  const auto last = &Behind::last;
  static_assert(sizeof last >= sizeof(uintptr_t));
  uintptr_t place = 0;
  std::memcpy(&place, &last, sizeof place);
  void* const* table = nullptr;
  std::memcpy(&table, static_cast<const void*>(object), sizeof table);
  for (size_t i = 0; i < place / sizeof *table; i++) {
    Dl_info found{};
    if (dladdr(table[i], &found) == 0 || found.dli_sname == nullptr)
      return "a function without a name";
    const std::string name = found.dli_sname;
    if (name.rfind("_ZN6stplan", 0) == 0 || name.rfind("_ZNK6stplan", 0) == 0)
      continue;
    int status = 0;
    char* readable = abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &status);
    const std::string text = readable != nullptr ? readable : name;
    std::free(readable);
    return text;
  }
  return "";
}

} // namespace stplan

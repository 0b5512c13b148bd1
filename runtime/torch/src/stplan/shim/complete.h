// complete.h: whether a class answers everything that torch may ask of an allocator.
#pragma once

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace stplan {

// unanswered names the first virtual function that the interface has and no class of
// this namespace overrides, or is empty. A release that adds one with an answer of
// its own compiles, and would have that given in the native allocator's place.
//
// By the C++ ABI a virtual table has the functions of the interface first, an
// object begins with a pointer to it, and a pointer to a virtual member begins with
// the place of its entry there: so one behind all of the interface's says how many
// these are. Whose an entry is, its symbol tells: the shim's are exported.
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

// complete_test.cpp: an interface with an added function, and classes that
// override all of its functions or not.
#include "complete.h"

#include <cstdio>

namespace torchlike {
struct Base {
  virtual ~Base() = default;
  virtual int allocate(int size) { return size; }
};
struct Interface : Base {
  virtual int old() = 0;
  virtual int added(const char*) { return 0; }
};
} // namespace torchlike

namespace stplan {
struct Half : torchlike::Interface {
  int allocate(int size) override { return size + 1; }
  int old() override { return 1; }
};
struct Whole : Half {
  int added(const char*) override { return 2; }
  virtual int own() { return 3; } // not of the interface, so unanswered ignores it
};
struct Inherits : torchlike::Interface {
  int old() override { return 1; }
  int added(const char*) override { return 2; }
};
} // namespace stplan

int main() {
  const stplan::Half half;
  const stplan::Whole whole;
  const stplan::Inherits inherits;
  for (const torchlike::Interface* object : {static_cast<const torchlike::Interface*>(&half),
                                             static_cast<const torchlike::Interface*>(&whole),
                                             static_cast<const torchlike::Interface*>(&inherits)})
    std::printf("[%s]\n", stplan::unanswered(object).c_str());
}

// all.cpp: the shim as one translation unit, because torch's headers take longer to
// compile than all of the shim.
#include "devices.cpp"
#include "history.cpp"
#include "install.cpp"
#include "pausing.cpp"
#include "pools.cpp"
#include "serving.cpp"
#include "sharing.cpp"
#include "snapshot.cpp"
#include "statistics.cpp"

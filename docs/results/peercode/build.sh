#!/bin/sh
# Build what peercode drives: the allocators of GMLake and of STAlloc, from their own code,
# against the simulated device of native/.
#
#   build.sh gmlake CHECKOUT FOLDER     makes FOLDER/gmlake
#   build.sh stalloc CHECKOUT FOLDER    makes FOLDER/stalloc and FOLDER/planner
#
# CHECKOUT is a work tree of github.com/intelligent-machine-learning/glake at 0274a9c, or of
# github.com/infinigence/STAlloc at 3a9f97f. Their code is compiled as it is.
#
# GMLake's needs the c10 headers of PyTorch 2.0, of which it is a fork, and libc10.so: they
# are taken from PyPI's wheel, 620 MB, unless FOLDER/torch has them. STAlloc's planner needs
# numpy, scikit-learn and matplotlib, which come from PyPI too. Needs g++, python3 with pip
# and venv, and unzip.
set -eu

if [ $# -ne 3 ]; then
  echo "usage: build.sh gmlake|stalloc CHECKOUT FOLDER" >&2
  exit 2
fi
peer=$1 checkout=$(cd "$2" && pwd) native=$(cd "$(dirname "$0")/native" && pwd)
packer=$(dirname "$native")/packer.py
mkdir -p "$3"
folder=$(cd "$3" && pwd)

torch_headers() {
  if [ -d "$folder/torch/include/c10" ]; then return; fi
  python3 -m pip download --no-deps --only-binary=:all: --python-version 3.11 \
    --platform manylinux1_x86_64 -d "$folder/wheel" torch==2.0.1
  unzip -q -o "$folder"/wheel/torch-2.0.1*.whl 'torch/include/c10/*' torch/lib/libc10.so -d "$folder"
  rm -r "$folder/wheel"
}

case $peer in
gmlake)
  torch_headers
  # Its installation puts its header among PyTorch's.
  mkdir -p "$folder/include/c10/cuda"
  cp "$checkout/GMLake/include/cuda_vmm_allocator.h" "$folder/include/c10/cuda/"
  # The wheel's code was compiled with the old layout of std::string. The header leaves the
  # inclusion of CUDA's driver to PyTorch's build.
  compile="g++ -std=c++17 -O2 -w -D_GLIBCXX_USE_CXX11_ABI=0 -I$folder/include -I$native -I$folder/torch/include"
  $compile -include cuda.h -c "$checkout/GMLake/src/CUDACachingAllocator.cpp" -o "$folder/gmlake.o"
  $compile "$native/gmlake.cpp" "$native/serve.cpp" "$native/device.cpp" "$folder/gmlake.o" \
    "$folder/torch/lib/libc10.so" "-Wl,-rpath,$folder/torch/lib" -o "$folder/gmlake"
  ;;
stalloc)
  g++ -std=c++17 -O2 -w "-I$checkout/Allocator" "-I$native" "$native/stalloc.cpp" "$native/serve.cpp" "$native/device.cpp" \
    "$checkout/Allocator/CUDACachingAllocator.cpp" -o "$folder/stalloc"
  if [ ! -x "$folder/venv/bin/python" ]; then
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/pip" install -q numpy scikit-learn matplotlib
  fi
  # The planner runs its packer by the name "python".
  cat >"$folder/planner" <<SCRIPT
#!/bin/sh
cd "$checkout/Synthesizer" && PATH="$folder/venv/bin:\$PATH" exec python main.py --allocator-exec-path "$packer" "\$@"
SCRIPT
  chmod +x "$folder/planner"
  ;;
*)
  echo "build.sh: expected gmlake or stalloc, found $peer" >&2
  exit 2
  ;;
esac

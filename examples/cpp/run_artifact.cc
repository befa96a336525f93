// Runs the compiled library of an artifact: no Python, nothing of tunefarm's.
//
//   run_artifact [--entry NAME] lib.so FILE SHAPE [FILE SHAPE ...]
//   run_artifact --verify-key KEYS [--entry NAME] NAME.tunefarm FILE SHAPE [FILE SHAPE ...]
//
// With KEYS, a file of public keys (or TUNEFARM_VERIFY_KEY in the environment), it takes the artifact itself, and loads nothing of it
// unless the envelope beside it says that one of them signed it.
// NAME is the function to call: an artifact of several shapes has one for each set of shapes, as its manifest lists. Without it: main.
// A FILE holds an input's float32 numbers, as numpy's tofile writes them, a SHAPE is 1x3x224x224; inputs come in the model's order.
// Writes output_0.bin, output_1.bin, ... and prints each one's shape and first numbers.

#include <dlpack/dlpack.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#ifndef WITHOUT_OPENSSL
#include "verify_artifact.h"
#endif

namespace ffi = tvm::ffi;

namespace {

constexpr DLDevice kCpu{kDLCPU, 0};
constexpr DLDataType kFloat32{kDLFloat, 32, 1};
constexpr int kPooledAllocator = 2;  // TVM's name for it: memory that is kept for the next call

// Memory as every compiled kernel can read it, an old one too: at a multiple of 64 bytes.
struct AlignedAlloc {
  void AllocData(DLTensor* tensor) {
    const size_t bytes = ffi::GetDataSize(*tensor);
    tensor->data = ::operator new(std::max<size_t>(bytes, 1), std::align_val_t{64});
  }
  void FreeData(DLTensor* tensor) { ::operator delete(tensor->data, std::align_val_t{64}); }
};

ffi::Shape ParseShape(const std::string& text) {
  std::vector<int64_t> sizes;
  std::istringstream stream(text);
  for (std::string size; std::getline(stream, size, 'x');) sizes.push_back(std::stoll(size));
  return ffi::Shape(sizes);
}

ffi::Tensor ReadInput(const std::string& path, const std::string& shape) {
  ffi::Tensor tensor = ffi::Tensor::FromNDAlloc(AlignedAlloc(), ParseShape(shape), kFloat32, kCpu);
  std::ifstream file(path, std::ios::binary);
  const auto bytes = static_cast<std::streamsize>(ffi::GetDataSize(tensor));
  file.read(static_cast<char*>(tensor.data_ptr()), bytes);
  if (file.gcount() != bytes || file.peek() != std::ifstream::traits_type::eof()) {
    throw std::runtime_error(path + " does not hold " + std::to_string(bytes) + " bytes");
  }
  return tensor;
}

// A model's result is a tensor, or a tuple of them.
void Flatten(const ffi::Any& value, std::vector<ffi::Tensor>* tensors) {
  if (auto tensor = value.try_cast<ffi::Tensor>()) {
    tensors->push_back(*tensor);
    return;
  }
  for (const ffi::Any& part : value.cast<ffi::Array<ffi::Any>>()) Flatten(part, tensors);
}

void WriteOutput(const ffi::Tensor& tensor, size_t number) {
  const std::string path = "output_" + std::to_string(number) + ".bin";
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(tensor.data_ptr()), static_cast<std::streamsize>(ffi::GetDataSize(tensor)));
  std::cout << path << ": " << ffi::DLDataTypeToString(tensor.dtype()) << " [";
  for (int i = 0; i < tensor.ndim(); ++i) std::cout << (i ? ", " : "") << tensor.size(i);
  std::cout << "]";
  if (tensor.dtype().code == kDLFloat && tensor.dtype().bits == 32) {
    const auto* numbers = static_cast<const float*>(tensor.data_ptr());
    for (int64_t i = 0; i < std::min<int64_t>(tensor.numel(), 5); ++i) std::cout << " " << numbers[i];
  }
  std::cout << "\n";
}

#ifdef WITHOUT_OPENSSL
ffi::Module LoadVerified(const std::string&, const std::string&) {
  throw std::runtime_error("this program was built without OpenSSL, and cannot verify: install libssl-dev, and build it again");
}
#else
// The verified bytes are in this process; the library is loaded from a folder that no other user can write to.
ffi::Module LoadVerified(const std::string& artifact, const std::string& keys) {
  const std::string library = verify::LibraryIn(verify::ReadVerified(artifact, keys));
  std::string folder = (std::filesystem::temp_directory_path() / "tunefarm-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder can be made in " + folder);
  struct Removed {
    std::string folder;
    ~Removed() {
      std::error_code ignored;
      std::filesystem::remove_all(folder, ignored);
    }
  } removed{folder};
  const std::string path = folder + "/lib.so";
  std::ofstream file(path, std::ios::binary);
  file.write(library.data(), static_cast<std::streamsize>(library.size()));
  file.close();
  if (!file) throw std::runtime_error(path + " cannot be written");
  return ffi::Module::LoadFromFile(path);
}
#endif

void Run(const std::string& entry, const std::string& keys, const std::vector<std::string>& arguments) {
  ffi::Module library = keys.empty() ? ffi::Module::LoadFromFile(std::filesystem::absolute(arguments[0]).string())
                                     : LoadVerified(arguments[0], keys);
  // The virtual machine that calls one kernel after the other. It is for one thread: make one per thread.
  ffi::Module machine = library->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
  machine->GetFunction("vm_initialization").value()(static_cast<int>(kCpu.device_type), kCpu.device_id, kPooledAllocator);
  std::vector<ffi::Tensor> inputs;
  for (size_t i = 1; i + 1 < arguments.size(); i += 2) inputs.push_back(ReadInput(arguments[i], arguments[i + 1]));
  std::vector<ffi::AnyView> views(inputs.begin(), inputs.end());
  ffi::Any result;
  auto function = machine->GetFunction(entry);
  if (!function.has_value()) throw std::runtime_error("the library has no entry " + entry);
  function.value().CallPacked(views.data(), static_cast<int32_t>(views.size()), &result);
  std::vector<ffi::Tensor> outputs;
  Flatten(result, &outputs);
  for (size_t i = 0; i < outputs.size(); ++i) WriteOutput(outputs[i], i);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  std::string entry = "main";
  const char* from_environment = getenv("TUNEFARM_VERIFY_KEY");
  std::string keys = from_environment == nullptr ? "" : from_environment;
  while (arguments.size() >= 2 && (arguments[0] == "--entry" || arguments[0] == "--verify-key")) {
    (arguments[0] == "--entry" ? entry : keys) = arguments[1];
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
  if (arguments.empty() || arguments.size() % 2 == 0) {
    std::cerr << "usage: run_artifact [--entry NAME] lib.so FILE SHAPE [FILE SHAPE ...]\n"
                 "       run_artifact --verify-key KEYS [--entry NAME] NAME.tunefarm FILE SHAPE [FILE SHAPE ...]\n";
    return 2;
  }
  try {
    Run(entry, keys, arguments);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
  return 0;
}

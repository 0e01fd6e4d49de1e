// What the tracer looks at in every step: fingerprints of batches as fingerprint.py makes them, and the state of gradients.

#pragma once

#include "frames.h"

#include <torch/csrc/autograd/python_variable.h>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ddp_audit {

// BLAKE2b (RFC 7693) with a digest of 8 bytes and no key.
class Blake2b {
 public:
  Blake2b() {
    state_[0] ^= 0x01010000 ^ 8;
  }

  void update(const void* data, size_t size) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    while (size != 0) {
      if (filled_ == block_.size()) { // not before there is more: the last block is marked as such
        total_ += filled_;
        compress(false);
        filled_ = 0;
      }
      const size_t part = std::min(size, block_.size() - filled_);
      std::memcpy(block_.data() + filled_, bytes, part);
      filled_ += part;
      bytes += part;
      size -= part;
    }
  }

  // The digest as a number, little endian.
  uint64_t digest() {
    total_ += filled_;
    std::fill(block_.begin() + static_cast<std::ptrdiff_t>(filled_), block_.end(), 0);
    compress(true);
    return state_[0];
  }

 private:
  static constexpr std::array<uint64_t, 8> kStart = {
      0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
      0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179};
  static constexpr uint8_t kOrder[10][16] = {
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
      {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
      {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
      {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
      {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

  static uint64_t turn(uint64_t word, int bits) {
    return word >> bits | word << (64 - bits);
  }

  void compress(bool is_last) {
    std::array<uint64_t, 16> words{};
    std::memcpy(words.data(), block_.data(), block_.size());
    std::array<uint64_t, 16> work{};
    std::copy(state_.begin(), state_.end(), work.begin());
    std::copy(kStart.begin(), kStart.end(), work.begin() + 8);
    work[12] ^= total_;
    work[14] ^= is_last ? ~0ULL : 0;
    auto mix = [&](int a, int b, int c, int d, uint64_t x, uint64_t y) {
      work[a] += work[b] + x;
      work[d] = turn(work[d] ^ work[a], 32);
      work[c] += work[d];
      work[b] = turn(work[b] ^ work[c], 24);
      work[a] += work[b] + y;
      work[d] = turn(work[d] ^ work[a], 16);
      work[c] += work[d];
      work[b] = turn(work[b] ^ work[c], 63);
    };
    for (int round = 0; round < 12; ++round) {
      const uint8_t* order = kOrder[round % 10];
      for (int i = 0; i < 4; ++i) {
        mix(i, 4 + i, 8 + i, 12 + i, words[order[2 * i]], words[order[2 * i + 1]]);
      }
      for (int i = 0; i < 4; ++i) {
        mix(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, words[order[8 + 2 * i]], words[order[9 + 2 * i]]);
      }
    }
    for (int i = 0; i < 8; ++i) {
      state_[i] ^= work[i] ^ work[i + 8];
    }
  }

  std::array<uint64_t, 8> state_ = kStart;
  std::array<uint8_t, 128> block_{};
  size_t filled_ = 0;
  uint64_t total_ = 0;
};

// The fingerprint of a batch of plain tensors in this process's memory; anything else is left to fingerprint.py.
class Fingerprints {
 public:
  // `about` is fingerprint._about: the text of a shape and a type.
  explicit Fingerprints(py::object about) : about_(std::move(about)) {}

  // See of_leaves. None where the batch has something in it that is no plain tensor.
  std::optional<uint64_t> of(PyObject* value) {
    std::vector<PyObject*> found;
    if (!collect(value, 0, found)) {
      return std::nullopt;
    }
    Blake2b digest;
    bool tells = false;
    for (PyObject* leaf : found) {
      const at::Tensor& tensor = THPVariable_Unpack(leaf);
      if (tensor.numel() == 0) {
        continue;
      }
      const std::string& text = about(leaf, tensor);
      digest.update(text.data(), text.size());
      std::array<uint8_t, kPieces * kPiece> data{};
      const size_t width = tensor.element_size();
      const size_t taken = sample(tensor, data);
      digest.update(data.data(), taken);
      tells = tells || std::memcmp(data.data(), data.data() + width, taken - width) != 0;
    }
    const uint64_t sum = digest.digest();
    return !tells ? 0 : sum == 0 ? 1 : sum;
  }

 private:
  static constexpr size_t kLeaves = 8; // these are fingerprint.py's
  static constexpr int kDepth = 4;
  static constexpr Py_ssize_t kItems = 64;
  static constexpr size_t kPieces = 8;
  static constexpr size_t kPiece = 64;

  static bool is_plain(const at::Tensor& tensor) {
    return tensor.defined() && tensor.layout() == at::kStrided && tensor.is_cpu() && !tensor.is_nested() &&
        !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() && tensor.has_storage() && tensor.is_contiguous() &&
        !tensor.is_conj() && !tensor.is_neg() && (tensor.numel() == 0 || tensor.storage().data() != nullptr);
  }

  // The leaves of a batch. False where one of them is no plain tensor, or something of an unknown kind is in it.
  bool collect(PyObject* value, int depth, std::vector<PyObject*>& found) {
    if (THPVariable_CheckExact(value)) {
      found.push_back(value);
      return is_plain(THPVariable_Unpack(value));
    }
    if (value == Py_None) {
      return true;
    }
    const bool is_dict = PyDict_CheckExact(value);
    if (!is_dict && !PyTuple_CheckExact(value) && !PyList_CheckExact(value)) {
      return false;
    }
    if (depth >= kDepth) {
      return true;
    }
    Py_ssize_t at = 0;
    PyObject* item = nullptr;
    for (Py_ssize_t count = 0; count < kItems && found.size() < kLeaves; ++count) {
      if (is_dict) {
        if (!PyDict_Next(value, &at, nullptr, &item)) {
          break;
        }
      } else if (at < PySequence_Fast_GET_SIZE(value)) {
        item = PySequence_Fast_GET_ITEM(value, at++);
      } else {
        break;
      }
      if (!collect(item, depth + 1, found)) {
        return false;
      }
    }
    return true;
  }

  const std::string& about(PyObject* leaf, const at::Tensor& tensor) {
    Key key(tensor.sizes().begin(), tensor.sizes().end());
    key.push_back(static_cast<int64_t>(tensor.scalar_type()));
    auto known = texts_.find(key);
    if (known == texts_.end()) {
      const auto object = py::reinterpret_borrow<py::object>(leaf);
      std::string text = about_(object.attr("shape"), object.attr("dtype")).cast<std::string>();
      if (texts_.size() >= kMostTexts) {
        texts_.clear();
      }
      known = texts_.emplace(std::move(key), std::move(text)).first;
    }
    return known->second;
  }

  static size_t sample(const at::Tensor& tensor, std::array<uint8_t, kPieces * kPiece>& data) {
    const auto* bytes = static_cast<const uint8_t*>(tensor.const_data_ptr());
    const size_t size = tensor.numel() * tensor.element_size();
    if (size <= data.size()) {
      std::memcpy(data.data(), bytes, size);
      return size;
    }
    for (size_t i = 0; i < kPieces; ++i) {
      std::memcpy(data.data() + i * kPiece, bytes + i * (size - kPiece - 1) / (kPieces - 1), kPiece);
    }
    return data.size();
  }

  static constexpr size_t kMostTexts = 1024;
  py::object about_;
  std::unordered_map<Key, std::string, KeyHash> texts_;
};

// Some parameters of a wrapper; keeps none of them alive.
class Gradients {
 public:
  explicit Gradients(const py::list& parameters) {
    for (py::handle parameter : parameters) {
      if (!THPVariable_Check(parameter.ptr())) {
        throw std::runtime_error("a parameter is no tensor");
      }
      parameters_.emplace_back(THPVariable_Unpack(parameter.ptr()).getIntrusivePtr());
    }
  }

  // Identity and version of their gradients: they change when a backward pass accumulates into them.
  PyObject* state() const {
    std::vector<int64_t> state;
    state.reserve(2 * parameters_.size());
    for (const auto& weak : parameters_) {
      const auto parameter = weak.lock();
      c10::TensorImpl* gradient = parameter ? parameter->grad().unsafeGetTensorImpl() : nullptr;
      const bool is_there = gradient != nullptr && gradient != at::UndefinedTensorImpl::singleton();
      state.push_back(is_there ? reinterpret_cast<int64_t>(gradient) : 0);
      state.push_back(is_there && !gradient->is_inference() ? gradient->version_counter().current_version() : 0);
    }
    return PyBytes_FromStringAndSize(
        reinterpret_cast<const char*>(state.data()), static_cast<Py_ssize_t>(state.size() * sizeof(int64_t)));
  }

 private:
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> parameters_;
};

inline constexpr const char* kGradients = "ddp_audit.gradients";

inline PyObject* state_of(PyObject* self, PyObject*) {
  const auto* gradients = static_cast<const Gradients*>(PyCapsule_GetPointer(self, kGradients));
  return gradients == nullptr ? nullptr : gradients->state();
}

// A function of Python's without arguments: the state of the gradients of some parameters.
inline py::object reader_of(const py::list& parameters) {
  static PyMethodDef function = {"gradients", state_of, METH_NOARGS, nullptr};
  const py::capsule self = capsule_of(Gradients(parameters), kGradients);
  return py::reinterpret_steal<py::object>(PyCFunction_NewEx(&function, self.ptr(), nullptr));
}

} // namespace ddp_audit

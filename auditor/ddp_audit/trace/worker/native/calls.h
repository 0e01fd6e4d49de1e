// What a call of the dispatcher consists of, as far as the kernel looks at it.

#pragma once

#include "frames.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>

namespace ddp_audit {

// Where the arguments of an operation stand; -1 where it has no such argument (hook.py, _Operation).
struct Operation {
  int number;
  int payload;
  int group;
  int root;
  int tag;
  int reduce_op;
  int is_async;
  int shares[3]; // what says how much goes to each rank and comes from it
  bool blocks;
  bool is_p2p;
};

// Everything of a collective that repeats from call to call (hook.py, Signature).
struct Signature {
  uint32_t definition;
  uint64_t digest;
  bool blocks;
  bool is_bucket;
  bool lingers;
  bool on_device;
  uint64_t user_elements;
};

// Adds the shapes and types of a payload to the key. False where they have no numbers (a tensor under a compiler).
inline bool add_payload(Key& key, const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined() || tensor.is_nested() || tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
      return false;
    }
    const auto sizes = tensor.sizes();
    key.push_back(
        static_cast<int64_t>(sizes.size()) << 32 | static_cast<int64_t>(tensor.scalar_type()) << 16 |
        static_cast<int64_t>(tensor.device().type()));
    key.insert(key.end(), sizes.begin(), sizes.end());
    return true;
  }
  if (!value.isList()) {
    return false;
  }
  const auto items = value.toListRef();
  key.push_back(static_cast<int64_t>(items.size()));
  for (const c10::IValue& item : items) {
    if (!add_payload(key, item)) {
      return false;
    }
  }
  return true;
}

// Adds an argument that says how much goes to each rank: numbers, or tensors.
inline bool add_shares(Key& key, const c10::IValue& value) {
  if (value.isIntList()) {
    const auto sizes = value.toIntVector();
    key.push_back(static_cast<int64_t>(sizes.size()));
    key.insert(key.end(), sizes.begin(), sizes.end());
    return true;
  }
  return add_payload(key, value);
}

} // namespace ddp_audit

// The tracer's kernel in C++: one boxed function for every c10d operation at the dispatch key BackendSelect.
//
// It writes the same records as the Python kernel (hook.py). What a record names - the stack, the group, the payload - is looked
// up in a cache; a call that was not seen before goes to `Hook.learn`, which writes the definition. So Python decides what stands
// in a trace, and this file only how a call that repeats is recorded.
//
// Everything of Python's, the cache and the counters are guarded by the GIL; pending.h has a lock of its own, under which the GIL
// is never asked for. The GIL is not held during the operation itself, in Work::isCompleted, or while a Work is destroyed.

#include "pending.h"
#include "records.h"

#include <frameobject.h>
#include <pybind11/pybind11.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/library.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace torch::jit {
// Declared in torch/csrc/jit/python/pybind_utils.h, which takes longer to compile than all the rest.
py::object toPyObject(c10::IValue value);
} // namespace torch::jit

namespace ddp_audit {
namespace {

constexpr int kMostFrames = 6; // frames.py
constexpr size_t kMostSignatures = 1 << 15;

// Where the arguments of an operation stand; -1 where it has no such argument (hook.py, _Operation).
struct Operation {
  int number;
  int payload;
  int group;
  int root;
  int tag;
  int reduce_op;
  int is_async;
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

using Key = std::vector<int64_t>;

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = key.size();
    for (int64_t word : key) {
      hash = (hash ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

class WithGil {
 public:
  WithGil() : state_(PyGILState_Ensure()) {}
  ~WithGil() {
    PyGILState_Release(state_);
  }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

int last_instruction(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return frame->f_lasti;
#endif
}

class Kernel : public std::enable_shared_from_this<Kernel> {
 public:
  Kernel(py::object tracer, py::object hook) : tracer_(std::move(tracer)), hook_(std::move(hook)) {}

  // Installs the kernel for one operation.
  void install(const std::string& name, const Operation& operation);

  // Takes the kernels out again.
  void remove() {
    library_.reset();
  }

  Pending& pending() {
    return pending_;
  }

  // Time of the last collective, seconds since the epoch; 0 before the first.
  double last_time() const {
    return last_time_;
  }

  uint64_t collectives() const {
    return collectives_;
  }

  // Forgets which address is which group: the groups may be gone.
  void forget_groups() {
    groups_.clear();
  }

  // Writes the record of a call. Null where the tracer is off or has failed now. Throws only what is no error of the tracer's:
  // an interrupt that came while Python was asked.
  std::shared_ptr<Entry> record(const Operation& operation, const torch::jit::Stack& stack, size_t first);

 private:
  std::shared_ptr<Entry> write(
      const Operation& operation,
      const torch::jit::Stack& stack,
      size_t first,
      std::shared_ptr<Entry>& before);
  bool find(const Operation& operation, const torch::jit::Stack& stack, size_t first, PyObject* group, bool is_async, Signature& out);
  PyObject* group_of(const c10::IValue& value);
  void add_frames(Key& key);
  bool learn(const Operation& operation, const torch::jit::Stack& stack, size_t first, PyObject* group, bool is_async, Signature& out);
  std::shared_ptr<Chunk> chunk_of(size_t slot);
  Thread& thread();
  void add(const char* name, uint64_t amount) {
    const py::object before = tracer_.attr(name);
    tracer_.attr(name) = before + py::int_(amount);
  }

  py::object tracer_;
  py::object hook_;
  py::object ring_;
  py::object slots_;
  std::unique_ptr<torch::Library> library_;

  // Guarded by the GIL.
  std::unordered_map<Key, Signature, KeyHash> signatures_;
  std::unordered_map<PyCodeObject*, int> verdicts_; // frames.py keeps the code objects
  std::unordered_map<const c10d::ProcessGroup*, PyObject*> groups_; // tracer.groups keeps the process groups
  std::vector<py::object> kept_groups_; // a group's address is part of keys
  std::shared_ptr<Chunk> chunk_;
  size_t chunk_number_ = 0;
  uint64_t collectives_ = 0;
  uint64_t digest_ = 0;
  double last_time_ = 0;

  Pending pending_;
};

// The names that are looked up in every call, made once.
struct Names {
  PyObject* on = PyUnicode_InternFromString("on");
  PyObject* next_index = PyUnicode_InternFromString("next_index");
  PyObject* with_stack = PyUnicode_InternFromString("with_stack");
  PyObject* backward = PyUnicode_InternFromString("backward");
  PyObject* name = PyUnicode_InternFromString("__name__");
  PyObject* main = PyUnicode_InternFromString("__main__");
};

const Names& names() {
  static const Names all;
  return all;
}

py::object get(PyObject* owner, PyObject* name) {
  PyObject* value = PyObject_GetAttr(owner, name);
  if (value == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(value);
}

bool is_main(PyFrameObject* frame) {
  py::object globals = py::reinterpret_steal<py::object>(PyObject_GetAttrString(reinterpret_cast<PyObject*>(frame), "f_globals"));
  if (!globals) {
    PyErr_Clear();
    return false;
  }
  PyObject* name = PyDict_GetItemWithError(globals.ptr(), names().name);
  return name != nullptr && PyUnicode_Check(name) && PyUnicode_Compare(name, names().main) == 0;
}

// Adds the shapes and types of a payload to the key. False where they have no numbers (a tensor under a compiler).
bool add_payload(Key& key, const c10::IValue& value) {
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

std::shared_ptr<Entry> Kernel::record(const Operation& operation, const torch::jit::Stack& stack, size_t first) {
  std::shared_ptr<Entry> before; // destroyed after the GIL is given back, and with it perhaps a Work
  WithGil gil;
  try {
    if (get(tracer_.ptr(), names().on).ptr() != Py_True) {
      return nullptr;
    }
    return write(operation, stack, first, before);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) {
      throw;
    }
    tracer_.attr("fail")(error.value());
  } catch (const std::exception& error) {
    tracer_.attr("fail")(py::reinterpret_borrow<py::object>(PyExc_RuntimeError)(error.what()));
  }
  return nullptr;
}

std::shared_ptr<Entry> Kernel::write(
    const Operation& operation,
    const torch::jit::Stack& stack,
    size_t first,
    std::shared_ptr<Entry>& before) {
  if (!ring_) {
    py::object ring = tracer_.attr("ring");
    slots_ = ring.attr("_slots");
    ring_ = std::move(ring);
  }
  PyObject* group = group_of(stack[first + operation.group]);
  bool is_async = operation.is_async >= 0 ? stack[first + operation.is_async].toBool() : !operation.blocks;
  Signature signature{};
  if (!find(operation, stack, first, group, is_async, signature)) {
    return nullptr;
  }
  is_async = is_async && !signature.blocks;
  if (signature.is_bucket) {
    add("buckets", 1);
  } else if (signature.user_elements != 0) {
    add("user_elements", signature.user_elements);
  }

  auto entry = std::make_shared<Entry>();
  Thread& thread = this->thread();
  // No Python code runs and the GIL stays here until the slot is taken, so that indices, slots and times have one order.
  uint32_t index = kNoIndex;
  if (!operation.is_p2p) {
    py::object count = get(group, names().next_index);
    const unsigned long value = PyLong_AsUnsignedLong(count.ptr());
    index = static_cast<uint32_t>(value);
    py::object next = py::reinterpret_steal<py::object>(PyLong_FromUnsignedLong(value + 1));
    if (!next || PyObject_SetAttr(group, names().next_index, next.ptr()) != 0) {
      throw py::error_already_set();
    }
  }
  const double time = now();
  py::object next = py::reinterpret_steal<py::object>(PyIter_Next(slots_.ptr()));
  if (!next) {
    throw py::error_already_set();
  }
  const size_t slot = PyLong_AsSize_t(next.ptr());
  entry->chunk = chunk_of(slot);
  Record* record = entry->chunk->at(slot % kPerChunk);
  entry->record = record;
  entry->group = group;
  entry->index = index;
  entry->is_async = is_async;
  entry->lingers = signature.lingers;
  entry->on_device = signature.on_device;
  thread.goes_on(time);
  record->state = kIssued;
  record->thread = thread.number;
  record->definition = signature.definition;
  record->index = index;
  record->number = 0;
  record->time = time;
  record->done = 0;
  std::atomic_ref<uint8_t>(record->kind).store(kCollective, std::memory_order_release);
  before = pending_.set_last_sync(thread, is_async ? nullptr : entry);
  last_time_ = time;
  digest_ = digest_ * 0x100000001B3ULL + signature.digest;
  collectives_ += 1;
  if (collectives_ % kCheckEvery == 0) {
    ring_.attr("write_check")(collectives_, digest_);
  }
  return entry;
}

// Looks up what is recorded for a call, and asks Python where it was not seen before. False where that has failed.
bool Kernel::find(
    const Operation& operation,
    const torch::jit::Stack& stack,
    size_t first,
    PyObject* group,
    bool is_async,
    Signature& out) {
  // The key is taken out of its place: a finalizer that runs in here may come back with a collective of its own.
  static thread_local Key place;
  Key key = std::move(place);
  key.clear();
  key.push_back(operation.number * 2 + (is_async ? 1 : 0));
  key.push_back(reinterpret_cast<int64_t>(group));
  key.push_back(operation.root >= 0 ? stack[first + operation.root].toInt() : -1);
  key.push_back(operation.tag >= 0 ? stack[first + operation.tag].toInt() : -1);
  key.push_back(
      operation.reduce_op >= 0 ? static_cast<int64_t>(stack[first + operation.reduce_op].toCustomClass<c10d::ReduceOp>()->op_) : -1);
  const bool is_known_size = operation.payload < 0 || add_payload(key, stack[first + operation.payload]);
  add_frames(key);
  auto found = is_known_size ? signatures_.find(key) : signatures_.end();
  if (found != signatures_.end()) {
    out = found->second;
    place = std::move(key);
    return true;
  }
  if (!learn(operation, stack, first, group, is_async, out)) {
    return false;
  }
  if (is_known_size) {
    if (signatures_.size() > kMostSignatures) {
      signatures_.clear();
    }
    signatures_.emplace(std::move(key), out);
  }
  return true;
}

PyObject* Kernel::group_of(const c10::IValue& value) {
  auto process_group = value.toCustomClass<c10d::ProcessGroup>();
  auto found = groups_.find(process_group.get());
  if (found != groups_.end()) {
    return found->second;
  }
  py::object group = hook_.attr("meet")(torch::jit::toPyObject(value));
  bool is_kept = false;
  for (const auto& kept : kept_groups_) {
    is_kept = is_kept || kept.is(group);
  }
  if (!is_kept) {
    kept_groups_.push_back(group);
  }
  groups_[process_group.get()] = group.ptr();
  return group.ptr();
}

// Adds the user's frames and the frames of torch that tell an origin to the key (frames.py, Frames.at).
void Kernel::add_frames(Key& key) {
  int users = 0;
  bool is_any = false;
  if (get(tracer_.ptr(), names().with_stack).ptr() == Py_True) {
    PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
    while (frame != nullptr) {
      PyCodeObject* code = PyFrame_GetCode(frame);
      auto found = verdicts_.find(code);
      int verdict = 0;
      if (found != verdicts_.end()) {
        verdict = found->second;
      } else {
        try {
          verdict = hook_.attr("judge")(py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(code))).cast<int>();
        } catch (...) {
          Py_DECREF(code);
          Py_DECREF(frame);
          throw;
        }
        verdicts_[code] = verdict;
      }
      bool is_last = false;
      if (verdict != 0) {
        key.push_back(reinterpret_cast<int64_t>(code));
        key.push_back(last_instruction(frame));
        if (verdict == 1) {
          users += 1;
          is_last = users == kMostFrames;
        } else if (verdict == 2) {
          is_last = is_main(frame);
        }
        is_any = is_any || verdict != 3;
      }
      Py_DECREF(code);
      PyFrameObject* back = is_last ? nullptr : PyFrame_GetBack(frame);
      Py_DECREF(frame);
      frame = back;
    }
  }
  if (!is_any) { // a thread of torch's own: the backward pass under way says where the user is
    py::object backward = get(tracer_.ptr(), names().backward);
    key.push_back(backward.is_none() ? -1 : backward.attr("definition").cast<int64_t>());
  }
}

bool Kernel::learn(
    const Operation& operation,
    const torch::jit::Stack& stack,
    size_t first,
    PyObject* group,
    bool is_async,
    Signature& out) {
  py::tuple arguments(stack.size() - first);
  for (size_t i = first; i < stack.size(); ++i) {
    arguments[i - first] = torch::jit::toPyObject(stack[i]);
  }
  py::object answer =
      hook_.attr("learn")(operation.number, arguments, py::reinterpret_borrow<py::object>(group), is_async);
  if (answer.is_none()) {
    return false;
  }
  out.definition = answer.attr("definition").cast<uint32_t>();
  out.digest = answer.attr("digest").cast<uint64_t>();
  out.blocks = answer.attr("blocks").cast<bool>();
  out.is_bucket = answer.attr("is_bucket").cast<bool>();
  out.lingers = answer.attr("lingers").cast<bool>();
  out.on_device = answer.attr("on_device").cast<bool>();
  out.user_elements = answer.attr("user_elements").cast<uint64_t>();
  return true;
}

// The chunk of the file that a slot lies in. The file grows in Python (ring.py).
std::shared_ptr<Chunk> Kernel::chunk_of(size_t slot) {
  const size_t number = slot / kPerChunk;
  if (chunk_ && chunk_number_ == number) {
    return chunk_;
  }
  ring_.attr("_grow")(number);
  auto mapped = std::make_shared<Chunk>(ring_.attr("_descriptor").cast<int>(), number);
  if (!chunk_ || number > chunk_number_) { // else another thread has gone on meanwhile
    chunk_ = mapped;
    chunk_number_ = number;
  }
  return mapped;
}

Thread& Kernel::thread() {
  Thread* thread = pending_.thread();
  return thread != nullptr ? *thread : pending_.add_thread(tracer_.attr("thread")().cast<uint16_t>());
}

// What the dispatcher calls.
class Caller : public c10::OperatorKernel {
 public:
  Caller(std::shared_ptr<Kernel> kernel, const Operation& operation) : kernel_(std::move(kernel)), operation_(operation) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const auto after = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
    std::shared_ptr<Entry> entry;
    if (Py_IsInitialized()) {
      entry = kernel_->record(operation_, *stack, stack->size() - op.schema().arguments().size());
    }
    if (!entry) {
      op.redispatchBoxed(after, stack);
      return;
    }
    try {
      op.redispatchBoxed(after, stack);
    } catch (...) {
      entry->mark(kRaised, now());
      throw;
    }
    if (operation_.blocks) { // no Work: the call itself has waited
      entry->mark(kDone, now());
    } else {
      kernel_->pending().issued(entry, stack->back());
    }
  }

 private:
  std::shared_ptr<Kernel> kernel_;
  Operation operation_;
};

void Kernel::install(const std::string& name, const Operation& operation) {
  if (!library_) {
    library_ = std::make_unique<torch::Library>(
        torch::Library::IMPL, "c10d", c10::DispatchKey::BackendSelect, __FILE__, __LINE__);
  }
  library_->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Caller>(shared_from_this(), operation)));
}

} // namespace
} // namespace ddp_audit

PYBIND11_MODULE(ddp_audit_kernel, module) {
  using ddp_audit::Kernel;
  using ddp_audit::Operation;
  py::class_<Kernel, std::shared_ptr<Kernel>>(module, "Kernel")
      .def(py::init<py::object, py::object>(), py::arg("tracer"), py::arg("hook"))
      .def(
          "install",
          [](Kernel& kernel,
             const std::string& name,
             int number,
             int payload,
             int group,
             int root,
             int tag,
             int reduce_op,
             int is_async,
             bool blocks,
             bool is_p2p) {
            kernel.install(name, Operation{number, payload, group, root, tag, reduce_op, is_async, blocks, is_p2p});
          })
      .def("remove", &Kernel::remove)
      .def("returned", [](Kernel& kernel, double time) { kernel.pending().returned(time); })
      .def(
          "poll",
          [](Kernel& kernel, double time, bool asks_devices) { kernel.pending().poll(time, asks_devices); },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "oldest",
          [](Kernel& kernel) -> py::object {
            const auto time = kernel.pending().oldest();
            return time ? py::object(py::float_(*time)) : py::object(py::none());
          })
      .def("has_pending", [](Kernel& kernel) { return kernel.pending().is_any(); })
      .def("forget_groups", &Kernel::forget_groups)
      .def_property_readonly("last_time", &Kernel::last_time)
      .def_property_readonly("collectives", &Kernel::collectives);
}

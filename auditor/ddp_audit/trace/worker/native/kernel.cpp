// The tracer's kernel in C++: one boxed function for every c10d operation at the dispatch key BackendSelect.
//
// It writes the same records as the Python kernel (hook.py). What a record names - the stack, the group, the payload - is looked
// up in a cache; a call that was not seen before goes to `Hook.learn`, which writes the definition. So Python decides what stands
// in a trace, and this file only how a call that repeats is recorded.
//
// Everything of Python's, the cache and the counters are guarded by the GIL; pending.h has a lock of its own, under which the GIL
// is never asked for. The GIL is not held during the operation itself, in Work::isCompleted, or while a Work is destroyed.

#include "calls.h"
#include "frames.h"
#include "looks.h"
#include "pending.h"
#include "records.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/library.h>

#include <atomic>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torch::jit {
// Declared in torch/csrc/jit/python/pybind_utils.h, which takes longer to compile than all the rest.
py::object toPyObject(c10::IValue value);
} // namespace torch::jit

namespace ddp_audit {
namespace {

constexpr size_t kMostSignatures = 1 << 15;

// An event that is not a collective, at a place in the user's code (tracer.py, Prepared).
struct Noted {
  uint32_t definition;
  py::object prepared; // its address is part of the key
  py::object stack;
};

class Kernel : public std::enable_shared_from_this<Kernel> {
 public:
  Kernel(py::object tracer, py::object hook, py::object about)
      : tracer_(std::move(tracer)), hook_(std::move(hook)), walk_(hook_.attr("judge")), fingerprints_(std::move(about)) {}

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

  // Forgets the definitions: those in the file will be overwritten (hook.py, forget_definitions).
  void forget_definitions() {
    signatures_.clear();
    noted_.clear();
  }

  // Writes the record of a call. Null where the tracer is off or has failed now. Throws only what is no error of the tracer's:
  // an interrupt that came while Python was asked.
  std::shared_ptr<Entry> record(const Operation& operation, const torch::jit::Stack& stack, size_t first);

  // Writes the record of an event at the user's line, which `finish` may complete. What an error ends is the tracing.
  py::object note(PyObject* prepared, uint64_t value, uint32_t number);
  void finish(PyObject* place, uint32_t number, uint8_t state);

  std::optional<uint64_t> fingerprint(PyObject* batch) {
    return fingerprints_.of(batch);
  }

  // Calls a part of the tracer's; what goes wrong in it ends the tracing, an interrupt apart. Called with the GIL.
  template <typename Part>
  void safely(const Part& part) {
    try {
      part();
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_Exception)) {
        throw;
      }
      tracer_.attr("fail")(error.value());
    } catch (const std::exception& error) {
      tracer_.attr("fail")(py::reinterpret_borrow<py::object>(PyExc_RuntimeError)(error.what()));
    }
  }

 private:
  size_t next_slot();
  const Noted& find_noted(PyObject* prepared);
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
  py::object tracer_;
  py::object hook_;
  py::object ring_;
  py::object slots_;
  std::unique_ptr<torch::Library> library_;

  // Guarded by the GIL.
  std::unordered_map<Key, Signature, KeyHash> signatures_;
  std::unordered_map<Key, Noted, KeyHash> noted_;
  Walk walk_;
  Fingerprints fingerprints_;
  std::unordered_map<const c10d::ProcessGroup*, PyObject*> groups_; // tracer.groups keeps the process groups
  std::vector<py::object> kept_groups_; // a group's address is part of keys
  std::shared_ptr<Chunk> chunk_;
  size_t chunk_number_ = 0;
  std::multimap<size_t, std::weak_ptr<Chunk>> mapped_; // those in which a record may still be marked
  uint64_t collectives_ = 0;
  uint64_t digest_ = 0;
  double last_time_ = 0;

  Pending pending_;
};

std::shared_ptr<Entry> Kernel::record(const Operation& operation, const torch::jit::Stack& stack, size_t first) {
  std::shared_ptr<Entry> before; // destroyed after the GIL is given back, and with it perhaps a Work
  std::shared_ptr<Entry> entry;
  WithGil gil;
  safely([&] {
    if (get(tracer_.ptr(), names().on).ptr() == Py_True) {
      entry = write(operation, stack, first, before);
    }
  });
  return entry;
}

std::shared_ptr<Entry> Kernel::write(
    const Operation& operation,
    const torch::jit::Stack& stack,
    size_t first,
    std::shared_ptr<Entry>& before) {
  PyObject* group = group_of(stack[first + operation.group]);
  bool is_async = operation.is_async >= 0 ? stack[first + operation.is_async].toBool() : !operation.blocks;
  Signature signature{};
  if (!find(operation, stack, first, group, is_async, signature)) {
    return nullptr;
  }
  is_async = is_async && !signature.blocks;
  if (signature.is_bucket) {
    add(tracer_.ptr(), names().buckets, 1);
  } else if (signature.user_elements != 0) {
    add(tracer_.ptr(), names().user_elements, signature.user_elements);
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
  const size_t slot = next_slot();
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
  record->number = check_of(kCollective, thread.number, signature.definition, index, time, slot);
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

size_t Kernel::next_slot() {
  if (!ring_) {
    py::object ring = tracer_.attr("ring");
    slots_ = ring.attr("_slots");
    ring_ = std::move(ring);
  }
  py::object next = py::reinterpret_steal<py::object>(PyIter_Next(slots_.ptr()));
  if (!next) {
    throw py::error_already_set();
  }
  return PyLong_AsSize_t(next.ptr());
}

py::object Kernel::note(PyObject* prepared, uint64_t value, uint32_t number) {
  if (get(tracer_.ptr(), names().on).ptr() != Py_True) {
    return tracer_.attr("note_in_python")(py::reinterpret_borrow<py::object>(prepared), value, number);
  }
  const Noted& noted = find_noted(prepared);
  py::object stack = noted.stack; // the rest of `noted` may be gone when Python has run
  const uint32_t definition = noted.definition;
  Thread& thread = this->thread();
  const double time = now();
  const size_t slot = next_slot();
  const std::shared_ptr<Chunk> chunk = chunk_of(slot);
  Record* record = chunk->at(slot % kPerChunk);
  thread.goes_on(time);
  record->state = kIssued;
  record->thread = thread.number;
  record->definition = definition;
  record->index = check_of(kEvent, thread.number, definition, number, time, slot) ^ static_cast<uint32_t>(value) ^
      static_cast<uint32_t>(value >> 32);
  record->number = number;
  record->time = time;
  std::memcpy(&record->done, &value, sizeof(value));
  std::atomic_ref<uint8_t>(record->kind).store(kEvent, std::memory_order_release);
  last_time_ = time;
  return py::make_tuple(slot, stack);
}

void Kernel::finish(PyObject* place, uint32_t number, uint8_t state) {
  if (!PyLong_Check(place)) { // it was noted in Python, or not at all
    tracer_.attr("finish_in_python")(py::reinterpret_borrow<py::object>(place), number, state);
    return;
  }
  const size_t slot = PyLong_AsSize_t(place);
  if (slot / kPerChunk != chunk_number_ && ring_.attr("position")(slot / kPerChunk).cast<int64_t>() < 0) {
    return; // overwritten meanwhile
  }
  const std::shared_ptr<Chunk> chunk = chunk_of(slot);
  Record* record = chunk->at(slot % kPerChunk);
  record->number = number;
  record->done = now();
  std::atomic_ref<uint8_t>(record->state).store(state, std::memory_order_release);
  if (number != 0) { // a backward pass returns when its buckets have: what was pending is over
    py::gil_scoped_release without_gil;
    pending_.poll(record->done, false);
  }
}

// What is recorded for an event at this place; asks Python where it was not seen before.
const Noted& Kernel::find_noted(PyObject* prepared) {
  static thread_local Key place; // see find
  Key key = std::move(place);
  key.clear();
  key.push_back(reinterpret_cast<int64_t>(prepared));
  walk_.add_to(key);
  auto found = noted_.find(key);
  if (found != noted_.end()) {
    place = std::move(key);
    return found->second;
  }
  py::object event = py::reinterpret_borrow<py::object>(prepared);
  py::object stack = hook_.attr("locate")();
  const auto definition = hook_.attr("define")(event, stack).cast<uint32_t>();
  if (noted_.size() > kMostSignatures) {
    noted_.clear();
  }
  return noted_.insert_or_assign(std::move(key), Noted{definition, event, stack}).first->second;
}

// The number of a call's reduction, -1 where it has none. Before torch 2.10 Python cannot ask for it.
int64_t reduction_of(const Operation& operation, const torch::jit::Stack& stack, size_t first) {
  return operation.reduce_op >= 0 ? static_cast<int64_t>(stack[first + operation.reduce_op].toCustomClass<c10d::ReduceOp>()->op_) : -1;
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
  key.push_back(reduction_of(operation, stack, first));
  bool is_known_size = operation.payload < 0 || add_payload(key, stack[first + operation.payload]);
  for (const int share : operation.shares) {
    is_known_size = is_known_size && (share < 0 || add_shares(key, stack[first + share]));
  }
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
  const bool with_stack = get(tracer_.ptr(), names().with_stack).ptr() == Py_True;
  if (!with_stack || !walk_.add_to(key)) { // a thread of torch's own: the backward pass under way says where the user is
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
  py::object answer = hook_.attr("learn")(
      operation.number, arguments, py::reinterpret_borrow<py::object>(group), is_async, reduction_of(operation, stack, first));
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
  auto mapped = std::make_shared<Chunk>(ring_.attr("_descriptor").cast<int>(), ring_.attr("position")(number).cast<int64_t>());
  for (auto known = mapped_.begin(); known != mapped_.end();) {
    const bool is_over = ring_.attr("position")(known->first).cast<int64_t>() < 0;
    const std::shared_ptr<Chunk> chunk = known->second.lock();
    if (chunk && is_over) {
      chunk->give_up();
    }
    known = chunk && !is_over ? std::next(known) : mapped_.erase(known);
  }
  mapped_.emplace(number, mapped);
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

// What Python calls in every step, without what pybind11 does around a call. `self` is the kernel's capsule.
namespace ddp_audit {
namespace {

constexpr const char* kCapsule = "ddp_audit.kernel";

template <typename Part>
PyObject* call(PyObject* self, const Part& part) {
  auto* kernel = static_cast<std::shared_ptr<Kernel>*>(PyCapsule_GetPointer(self, kCapsule));
  if (kernel == nullptr) {
    return nullptr;
  }
  py::object answer = py::none();
  try {
    (*kernel)->safely([&] { answer = part(**kernel); });
  } catch (py::error_already_set& error) { // an interrupt
    error.restore();
    return nullptr;
  }
  return answer.release().ptr();
}

uint64_t number_of(PyObject* value) {
  const uint64_t number = PyLong_AsUnsignedLongLong(value);
  if (PyErr_Occurred() != nullptr) {
    throw py::error_already_set();
  }
  return number;
}

// note(prepared, value=0, number=0) -> (place, stack); None where that has failed
PyObject* note(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return call(self, [&](Kernel& kernel) -> py::object {
    const uint64_t value = count > 1 ? number_of(args[1]) : 0;
    const auto number = static_cast<uint32_t>(count > 2 ? number_of(args[2]) : 0);
    return kernel.note(count > 0 ? args[0] : Py_None, value, number);
  });
}

// finish(place, number, state)
PyObject* finish(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  return call(self, [&](Kernel& kernel) -> py::object {
    if (count == 3) {
      kernel.finish(args[0], static_cast<uint32_t>(number_of(args[1])), static_cast<uint8_t>(number_of(args[2])));
    }
    return py::none();
  });
}

// fingerprint(batch) -> a number; None where fingerprint.py has to make it
PyObject* fingerprint(PyObject* self, PyObject* batch) {
  return call(self, [&](Kernel& kernel) -> py::object {
    const auto found = kernel.fingerprint(batch);
    return found ? py::object(py::int_(*found)) : py::object(py::none());
  });
}

PyMethodDef kFunctions[] = {
    {"note", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(note)), METH_FASTCALL, nullptr},
    {"finish", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(finish)), METH_FASTCALL, nullptr},
    {"fingerprint", fingerprint, METH_O, nullptr}};

py::tuple functions(const std::shared_ptr<Kernel>& kernel) {
  const py::capsule self = capsule_of(std::shared_ptr<Kernel>(kernel), kCapsule);
  py::list made;
  for (PyMethodDef& function : kFunctions) {
    made.append(py::reinterpret_steal<py::object>(PyCFunction_NewEx(&function, self.ptr(), nullptr)));
  }
  return py::tuple(made);
}

} // namespace
} // namespace ddp_audit

PYBIND11_MODULE(ddp_audit_kernel, module) {
  using ddp_audit::Kernel;
  using ddp_audit::Operation;
  py::class_<Kernel, std::shared_ptr<Kernel>>(module, "Kernel")
      .def(py::init<py::object, py::object, py::object>(), py::arg("tracer"), py::arg("hook"), py::arg("about"))
      .def("functions", [](const std::shared_ptr<Kernel>& kernel) { return ddp_audit::functions(kernel); })
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
             int first_share,
             int second_share,
             int third_share,
             bool blocks,
             bool is_p2p) {
            kernel.install(name, Operation{number, payload, group, root, tag, reduce_op, is_async, {first_share, second_share, third_share}, blocks, is_p2p});
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
      .def("forget_definitions", &Kernel::forget_definitions)
      .def_property_readonly("last_time", &Kernel::last_time)
      .def_property_readonly("collectives", &Kernel::collectives);
  module.def("gradients", &ddp_audit::reader_of, py::arg("parameters"));
}

// The user's frames as part of a key, and what the rest of the kernel needs of Python.

#pragma once

#include <Python.h>

#include <frameobject.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ddp_audit {

namespace py = pybind11;

inline constexpr int kMostFrames = 6; // frames.py

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

// The names that are looked up in every call, made once.
struct Names {
  PyObject* on = PyUnicode_InternFromString("on");
  PyObject* next_index = PyUnicode_InternFromString("next_index");
  PyObject* with_stack = PyUnicode_InternFromString("with_stack");
  PyObject* backward = PyUnicode_InternFromString("backward");
  PyObject* buckets = PyUnicode_InternFromString("buckets");
  PyObject* user_elements = PyUnicode_InternFromString("user_elements");
  PyObject* name = PyUnicode_InternFromString("__name__");
  PyObject* main = PyUnicode_InternFromString("__main__");
};

inline const Names& names() {
  static const Names all;
  return all;
}

inline py::object get(PyObject* owner, PyObject* name) {
  PyObject* value = PyObject_GetAttr(owner, name);
  if (value == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(value);
}

// Adds an amount to a number among an object's attributes.
inline void add(PyObject* owner, PyObject* name, uint64_t amount) {
  const py::object sum = get(owner, name) + py::int_(amount);
  if (PyObject_SetAttr(owner, name, sum.ptr()) != 0) {
    throw py::error_already_set();
  }
}

// Something of C++ that a function of Python's is bound to.
template <typename Held>
py::capsule capsule_of(Held held, const char* name) {
  return py::capsule(new Held(std::move(held)), name, [](PyObject* capsule) {
    delete static_cast<Held*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
  });
}

// Walks stacks as Frames.at of frames.py does; `judge` is Frames.judge.
class Walk {
 public:
  explicit Walk(py::object judge) : judge_(std::move(judge)) {}

  // Adds the user's frames and the frames of torch that tell an origin to the key. Whether there was one of the user's.
  bool add_to(Key& key) {
    int users = 0;
    bool is_any = false;
    PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
    while (frame != nullptr) {
      PyCodeObject* code = PyFrame_GetCode(frame);
      auto found = verdicts_.find(code);
      int verdict = 0;
      if (found != verdicts_.end()) {
        verdict = found->second;
      } else {
        try {
          verdict = judge_(py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(code))).cast<int>();
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
    return is_any;
  }

 private:
  static int last_instruction(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
    return PyFrame_GetLasti(frame);
#else
    return frame->f_lasti;
#endif
  }

  static bool is_main(PyFrameObject* frame) {
    py::object globals = py::reinterpret_steal<py::object>(PyObject_GetAttrString(reinterpret_cast<PyObject*>(frame), "f_globals"));
    if (!globals) {
      PyErr_Clear();
      return false;
    }
    PyObject* name = PyDict_GetItemWithError(globals.ptr(), names().name);
    return name != nullptr && PyUnicode_Check(name) && PyUnicode_Compare(name, names().main) == 0;
  }

  py::object judge_;
  std::unordered_map<PyCodeObject*, int> verdicts_; // frames.py keeps the code objects
};

} // namespace ddp_audit

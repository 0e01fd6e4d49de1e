// Which collectives are not known to have returned: what a call that returns and the thread that looks for completion share.

#pragma once

#include <Python.h>

#include "records.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ddp_audit {

inline constexpr size_t kMostPending = 4096; // tracer.py

// A thread that issued collectives. Only the thread itself changes its own.
struct Thread {
  uint16_t number = 0;
  std::shared_ptr<Entry> last_sync; // its last collective, where that is a synchronous one

  // Notes that the thread goes on: its last synchronous collective has returned.
  void goes_on(double time) const {
    if (last_sync && !last_sync->is_marked()) {
      last_sync->mark(kDone, time);
    }
  }
};

class Pending {
 public:
  // The calling thread, or null where it issues its first collective.
  Thread* thread() {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = threads_.find(PyThread_get_thread_ident());
    return found == threads_.end() ? nullptr : &found->second;
  }

  Thread& add_thread(uint16_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    Thread& thread = threads_[PyThread_get_thread_ident()];
    thread.number = number;
    return thread;
  }

  // Returns what stood there before, which may hold the last reference to a Work: to be let go without the GIL.
  std::shared_ptr<Entry> set_last_sync(Thread& thread, std::shared_ptr<Entry> entry) {
    std::lock_guard<std::mutex> lock(mutex_);
    thread.last_sync.swap(entry);
    return entry;
  }

  // The calling thread records something that is no collective.
  void returned(double time) {
    if (const Thread* thread = this->thread()) {
      thread->goes_on(time);
    }
  }

  // Marks the pending collectives whose Work is completed (watch.py, Watch.poll). Called without the GIL.
  void poll(double time, bool asks_devices) {
    std::vector<std::shared_ptr<Entry>> syncs;
    std::deque<std::shared_ptr<Entry>> pending;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (pending_.empty() && is_nothing_open()) {
        return;
      }
      for (const auto& [ident, thread] : threads_) {
        if (thread.last_sync) {
          syncs.push_back(thread.last_sync);
        }
      }
      pending = pending_;
    }
    std::unordered_map<const void*, uint32_t> done;
    for (const auto& entry : syncs) {
      look(*entry, time, asks_devices, done);
    }
    std::unordered_set<const Entry*> over;
    for (const auto& entry : pending) {
      if (look(*entry, time, asks_devices, done)) {
        over.insert(entry.get());
      }
    }
    for (const auto& entry : pending) {
      // A later collective of the group has returned, so this one has.
      if (entry->lingers && !entry->is_marked()) {
        auto found = done.find(entry->group);
        if (found != done.end() && found->second > entry->index) {
          entry->mark(kDone, time);
          over.insert(entry.get());
        }
      }
    }
    std::deque<std::shared_ptr<Entry>> kept;
    std::lock_guard<std::mutex> lock(mutex_); // `pending` outlives it, so no Work is destroyed under it
    for (auto& entry : pending_) {
      if (over.count(entry.get()) == 0) {
        kept.push_back(std::move(entry));
      }
    }
    pending_.swap(kept);
  }

  // The time of the oldest collective that is not known to have returned, those apart that never tell; None without one.
  std::optional<double> oldest() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::optional<double> oldest;
    auto consider = [&](const std::shared_ptr<Entry>& entry) {
      if (entry && !entry->lingers && !entry->is_marked() && (!oldest || entry->record->time < *oldest)) {
        oldest = entry->record->time;
      }
    };
    for (const auto& [ident, thread] : threads_) {
      consider(thread.last_sync);
    }
    for (const auto& entry : pending_) {
      consider(entry);
    }
    return oldest;
  }

  bool is_any() {
    std::lock_guard<std::mutex> lock(mutex_);
    return !pending_.empty();
  }

  // Takes what a call has returned, its Work.
  void issued(const std::shared_ptr<Entry>& entry, const c10::IValue& result) {
    c10::intrusive_ptr<c10d::Work> work;
    try {
      work = result.toCustomClass<c10d::Work>();
    } catch (const std::exception&) { // not known to have returned until its thread goes on
    }
    std::shared_ptr<Entry> dropped; // destroyed after the lock is given back
    std::lock_guard<std::mutex> lock(mutex_);
    entry->work = std::move(work);
    if (entry->is_async) {
      if (pending_.size() >= kMostPending) {
        dropped = std::move(pending_.front());
        pending_.pop_front();
      }
      pending_.push_back(entry);
    }
  }

 private:
  // Whether no thread's last synchronous collective is open. Called with the lock.
  bool is_nothing_open() const {
    return std::all_of(threads_.begin(), threads_.end(), [](const auto& item) {
      return !item.second.last_sync || item.second.last_sync->is_marked();
    });
  }

  bool look(const Entry& entry, double time, bool asks_devices, std::unordered_map<const void*, uint32_t>& done) {
    if (!entry.is_marked()) {
      c10::intrusive_ptr<c10d::Work> work;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        work = entry.work;
      }
      if (!work || (entry.on_device && !asks_devices) || !is_completed(*work)) {
        return false;
      }
      entry.mark(kDone, time);
    }
    if (entry.index != kNoIndex) {
      uint32_t& last = done[entry.group];
      last = std::max(last, entry.index);
    }
    return true;
  }

  static bool is_completed(c10d::Work& work) {
    try {
      // The Work of torch's fake process group never says that it is completed.
      return std::strstr(typeid(work).name(), "FakeWork") != nullptr || work.isCompleted();
    } catch (...) { // a Work that cannot be asked must not look like one that waits
      return true;
    }
  }

  // A node of the map never moves.
  std::mutex mutex_;
  std::unordered_map<unsigned long, Thread> threads_;
  std::deque<std::shared_ptr<Entry>> pending_;
};

} // namespace ddp_audit

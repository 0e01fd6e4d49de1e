// The records of a trace file, as layout.py describes them, and how one is marked later.

#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>

namespace ddp_audit {

inline constexpr size_t kChunk = 1 << 20;
inline constexpr size_t kRecordSize = 32;
inline constexpr size_t kPerChunk = kChunk / kRecordSize;
inline constexpr uint8_t kCollective = 2;
inline constexpr uint8_t kEvent = 3;
inline constexpr uint8_t kIssued = 0;
inline constexpr uint8_t kDone = 1;
inline constexpr uint8_t kRaised = 2;
inline constexpr uint32_t kNoIndex = 0xFFFFFFFF;
inline constexpr uint64_t kCheckEvery = 1024;

struct Record {
  uint8_t kind;
  uint8_t state;
  uint16_t thread;
  uint32_t definition;
  uint32_t index; // of an event: the check
  uint32_t number; // of a collective: the check
  double time;
  double done;
};
static_assert(sizeof(Record) == kRecordSize);

// What the words of a record in a slot come to (layout.py, slot_word), less those of its fields. What is marked later does not count.
inline uint32_t check_of(uint8_t kind, uint16_t thread, uint32_t definition, uint32_t index, double time, size_t slot) {
  uint64_t bits = 0;
  std::memcpy(&bits, &time, sizeof(bits));
  const uint32_t word = static_cast<uint32_t>(slot) * 0x9E3779B1U + 0x7F4A7C15U;
  return word ^ kind ^ static_cast<uint32_t>(thread) << 16 ^ definition ^ index ^ static_cast<uint32_t>(bits) ^
      static_cast<uint32_t>(bits >> 32);
}

inline double now() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// A mapped part of the file. It stays mapped while a record in it may still be marked.
class Chunk {
 public:
  Chunk(int descriptor, int64_t position)
      : start_(mmap(nullptr, kChunk, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, static_cast<off_t>(position))) {
    if (start_ == MAP_FAILED) {
      throw std::runtime_error(std::string("the trace file cannot be mapped: ") + std::strerror(errno));
    }
  }
  ~Chunk() {
    munmap(start_, kChunk);
  }
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;
  Record* at(size_t within) const {
    return static_cast<Record*>(start_) + within;
  }
  // The ring has come round: other records take the place of this chunk's.
  void give_up() {
    is_over_.store(true, std::memory_order_release);
  }
  bool is_over() const {
    return is_over_.load(std::memory_order_acquire);
  }

 private:
  void* start_;
  std::atomic<bool> is_over_{false};
};

// A collective whose completion is looked for. `work` is set when the call has returned.
struct Entry {
  std::shared_ptr<Chunk> chunk;
  Record* record = nullptr;
  const void* group = nullptr;
  uint32_t index = 0;
  bool is_async = false;
  bool lingers = false;
  bool on_device = false;
  c10::intrusive_ptr<c10d::Work> work;

  bool is_marked() const {
    return chunk->is_over() || std::atomic_ref<uint8_t>(record->state).load(std::memory_order_acquire) != kIssued;
  }
  void mark(uint8_t state, double time) const {
    if (chunk->is_over()) {
      return;
    }
    record->done = time;
    std::atomic_ref<uint8_t>(record->state).store(state, std::memory_order_release);
  }
};

} // namespace ddp_audit

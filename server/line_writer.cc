#include "server/line_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace flash {

LineWriter::LineWriter(size_t max_waiting,
                       std::function<void(const std::string&)> write)
    : max_waiting_(max_waiting), write_(std::move(write)) {
  thread_ = std::thread([this] { Loop(); });
}

LineWriter::~LineWriter() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void LineWriter::TryWrite(std::string line) {
  {
    MutexLock lock(&mutex_);
    if (waiting_.size() >= max_waiting_) {
      ++num_dropped_;
      return;
    }
    waiting_.push_back(std::move(line));
    ++num_taken_;
  }
  changed_.NotifyAll();
}

bool LineWriter::Write(std::string line, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  MutexLock lock(&mutex_);
  waiting_.push_back(std::move(line));
  const int64_t last = ++num_taken_;
  changed_.NotifyAll();
  while (num_written_ < last && std::chrono::steady_clock::now() < deadline) {
    changed_.WaitUntil(&mutex_, deadline);
  }
  return num_written_ >= last;
}

void LineWriter::Loop() {
  while (true) {
    std::deque<std::string> lines;
    int64_t num_dropped = 0;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && num_dropped_ == 0 && !ending_) {
        changed_.Wait(&mutex_);
      }
      if (waiting_.empty() && num_dropped_ == 0) return;
      lines.swap(waiting_);
      num_dropped = std::exchange(num_dropped_, 0);
    }
    for (const std::string& line : lines) write_(line);
    if (num_dropped > 0) {
      write_(absl::StrCat("flash-server: ", num_dropped,
                          " lines were dropped: they came faster than they "
                          "could be written\n"));
    }
    MutexLock lock(&mutex_);
    num_written_ += static_cast<int64_t>(lines.size());
    changed_.NotifyAll();
  }
}

}  // namespace flash

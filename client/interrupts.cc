#include "client/interrupts.h"

#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "client/complain.h"
#include "kernels/mutex.h"

namespace flash {

struct Interrupts::Shared {
  Mutex mutex;
  std::function<void()> handler ABSL_GUARDED_BY(mutex) = [] {
    std::_Exit(kFailed);
  };
  bool called ABSL_GUARDED_BY(mutex) = false;
};

Interrupts::Interrupts() : shared_(std::make_shared<Shared>()) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals, shared = shared_] {
    while (true) {
      int signal = 0;
      sigwait(&signals, &signal);
      MutexLock lock(&shared->mutex);
      if (std::exchange(shared->called, true)) std::_Exit(kFailed);
      shared->handler();
    }
  }).detach();
}

void Interrupts::Call(std::function<void()> handler) {
  MutexLock lock(&shared_->mutex);
  shared_->handler = std::move(handler);
  shared_->called = false;
}

}  // namespace flash

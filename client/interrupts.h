// What Ctrl-C does.

#ifndef CLIENT_INTERRUPTS_H_
#define CLIENT_INTERRUPTS_H_

#include <functional>
#include <memory>

namespace flash {

// SIGINT calls a function; a second one, with the same function, ends the
// program with 1.
//
// Thread safety: one thread at a time.
class Interrupts {
 public:
  // To be made before there are threads, which would take the signal. Lives
  // until the program ends.
  Interrupts();

  // What to call from now on, on a thread of its own. Returns when the one
  // before is not running any more, so it may be called from no handler.
  void Call(std::function<void()> handler);

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace flash

#endif  // CLIENT_INTERRUPTS_H_

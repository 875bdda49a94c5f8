#include "server/sessions/body.h"

#include <utility>

#include "server/model/state_bytes.h"

namespace flash {

std::shared_ptr<const std::string> MakeBody(std::string bytes) {
  return ShareState(std::move(bytes));
}

std::shared_ptr<const std::string> WipedBody(
    const std::shared_ptr<const std::string>& body) {
  return std::get_deleter<WipeAndDelete>(body) != nullptr ? body
                                                          : MakeBody(*body);
}

}  // namespace flash

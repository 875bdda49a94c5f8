// States outside of any slot, as LanguageModel::Save() writes them.

#ifndef SERVER_MODEL_STATE_BYTES_H_
#define SERVER_MODEL_STATE_BYTES_H_

#include <string.h>  // explicit_bzero, which is no standard C++

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace flash {

// Makes every byte of `bytes` zero, whatever the compiler thinks of it.
inline void Wipe(std::string& bytes) {
  explicit_bzero(bytes.data(), bytes.size());
}

// Appends `more`. Where `bytes` have to move for that, nothing of them stays
// where they were.
inline void AppendAndWipe(std::string& bytes, std::string_view more) {
  if (bytes.size() + more.size() > bytes.capacity()) {
    std::string larger;
    larger.reserve(std::max(bytes.size() + more.size(), 2 * bytes.capacity()));
    larger.append(bytes);
    Wipe(bytes);
    bytes.swap(larger);
  }
  bytes.append(more);
}

struct WipeAndDelete {
  void operator()(std::string* bytes) const {
    Wipe(*bytes);
    delete bytes;
  }
};

// A state for whoever wants to hold it. When nobody does any more it is wiped
// before its memory is given back: what comes to lie there next is perhaps sent
// to another client. Takes as long as writing that memory once.
inline std::shared_ptr<const std::string> ShareState(std::string state) {
  return std::shared_ptr<std::string>(new std::string(std::move(state)),
                                      WipeAndDelete());
}

}  // namespace flash

#endif  // SERVER_MODEL_STATE_BYTES_H_

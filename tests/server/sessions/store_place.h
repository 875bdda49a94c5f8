// The places where the tests of blob stores keep blobs: one body of tests for
// all of them.

#ifndef TESTS_SERVER_SESSIONS_STORE_PLACE_H_
#define TESTS_SERVER_SESSIONS_STORE_PLACE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "server/sessions/blob_store.h"

namespace flash {

constexpr int64_t kPlentyOfBytes = int64_t{1} << 30;

class StorePlace {
 public:
  virtual ~StorePlace() = default;

  // A store on this place. Those on a lasting one see what the others wrote.
  virtual std::unique_ptr<BlobStore> Open(int64_t max_bytes) = 0;

  // Whether what is written outlives the store's object.
  virtual bool lasts() const = 0;
};

// One of "memory", "directory" and "redis"; null if there is no redis-server.
std::unique_ptr<StorePlace> MakeStorePlace(const std::string& kind);

}  // namespace flash

#endif  // TESTS_SERVER_SESSIONS_STORE_PLACE_H_

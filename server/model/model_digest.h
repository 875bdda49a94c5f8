// Which model it is that was loaded.

#ifndef SERVER_MODEL_MODEL_DIGEST_H_
#define SERVER_MODEL_MODEL_DIGEST_H_

#include <string>

#include "kernels/thread_pool.h"
#include "server/model/flash_model.h"

namespace flash {

// Equal, but for chance, exactly where config.json has the same bytes and there
// are the same tensors: names, types, shapes and bits. How they are spread over
// files does not matter. As 32 hexadecimal digits. Reads all of the checkpoint,
// about as fast as memory is.
std::string ModelDigest(const ModelFiles& files, ThreadPool& threads);

}  // namespace flash

#endif  // SERVER_MODEL_MODEL_DIGEST_H_

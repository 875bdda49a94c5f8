// What a caller may ask of sessions; the service tells and checks it, and
// Sessions keeps to it.

#ifndef SERVER_SESSIONS_SESSION_LIMITS_H_
#define SERVER_SESSIONS_SESSION_LIMITS_H_

#include <cstdint>

namespace flash {

inline constexpr int32_t kMaxForks = 1024;  // that one call makes
inline constexpr int64_t kMaxTimeToLiveSeconds = 30 * 24 * 3600;

}  // namespace flash

#endif  // SERVER_SESSIONS_SESSION_LIMITS_H_

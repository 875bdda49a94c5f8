// Bodies that are overwritten before their memory is free for others.

#ifndef SERVER_SESSIONS_BODY_H_
#define SERVER_SESSIONS_BODY_H_

#include <memory>
#include <string>

namespace flash {

// Owns `bytes`, and overwrites them when the last owner goes.
std::shared_ptr<const std::string> MakeBody(std::string bytes);

// `body` itself if MakeBody() made it, otherwise a copy that it makes.
std::shared_ptr<const std::string> WipedBody(
    const std::shared_ptr<const std::string>& body);

}  // namespace flash

#endif  // SERVER_SESSIONS_BODY_H_

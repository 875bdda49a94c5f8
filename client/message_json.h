// Messages as JSON objects: fields by their names in the .proto files, numbers
// as numbers.

#ifndef CLIENT_MESSAGE_JSON_H_
#define CLIENT_MESSAGE_JSON_H_

#include <nlohmann/json.hpp>

#include "google/protobuf/message.h"

namespace flash {

// Fields that can be unset, and are, are left out; so are empty lists. Bytes
// that are no UTF-8 come with U+FFFD in their place when this is written.
nlohmann::ordered_json MessageJson(const google::protobuf::Message& message);

// One line, valid UTF-8 whatever is in it.
std::string JsonLine(const nlohmann::ordered_json& json);

}  // namespace flash

#endif  // CLIENT_MESSAGE_JSON_H_

// The version of the software, the same as that of the build's project().

#ifndef SERVER_COMMAND_LINE_VERSION_H_
#define SERVER_COMMAND_LINE_VERSION_H_

namespace flash {

inline constexpr char kVersion[] = FLASH_VERSION;  // of the build

}  // namespace flash

#endif  // SERVER_COMMAND_LINE_VERSION_H_

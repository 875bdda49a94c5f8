#include "server/sessions/sha256.h"

#include <openssl/evp.h>

#include <memory>

#include "kernels/check.h"

namespace flash {
namespace {

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

// Looked up once: OpenSSL takes longer for that than for a chunk of ids.
const EVP_MD* Algorithm() {
  static const EVP_MD* const algorithm =
      EVP_MD_fetch(nullptr, "SHA256", nullptr);
  FLASH_CHECK(algorithm != nullptr);
  return algorithm;
}

}  // namespace

Sha256Digest Sha256(std::initializer_list<std::string_view> parts) {
  thread_local const std::unique_ptr<EVP_MD_CTX, FreeContext> context(
      EVP_MD_CTX_new());
  Sha256Digest digest;
  // They fail only if there is no memory for a context.
  FLASH_CHECK(EVP_DigestInit_ex2(context.get(), Algorithm(), nullptr) == 1);
  for (const std::string_view part : parts) {
    FLASH_CHECK(EVP_DigestUpdate(context.get(), part.data(), part.size()) == 1);
  }
  FLASH_CHECK(EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) == 1);
  return digest;
}

}  // namespace flash

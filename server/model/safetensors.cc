#include "server/model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/model/strict_json.h"

namespace flash {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian and we read it in place");

constexpr size_t kLengthBytes = sizeof(uint64_t);
// As the format's own library has it.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
// No file has a tensor of more elements, and no product on the way overflows.
constexpr int64_t kMaxElements = int64_t{1} << 48;

// Where a tensor lies, counted from the end of the header.
struct Extent {
  int64_t begin = 0;
  int64_t end = 0;
  std::string name;

  auto operator<=>(const Extent&) const = default;
};

// The number of elements, or nothing if it is out of all reason.
std::optional<int64_t> NumElements(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(product, size, &product)) return std::nullopt;
    if (product > kMaxElements) return std::nullopt;
  }
  return product;
}

// Reads what the header says of one tensor. A mistake goes to `errors`, and the
// values returned are then of no use.
std::pair<TensorView, Extent> ReadEntry(const std::string& name,
                                        const nlohmann::json& entry,
                                        int64_t data_bytes,
                                        FirstError& errors) {
  ObjectReader reader(entry, name, &errors);
  TensorView view;
  view.type = reader.OneOf<DataType>("dtype", {{"F32", DataType::kFloat32},
                                               {"F16", DataType::kFloat16},
                                               {"BF16", DataType::kBFloat16}});
  view.shape = reader.Integers("shape", 0, kMaxElements);
  std::vector<int64_t> offsets =
      reader.Integers("data_offsets", 0, std::numeric_limits<int64_t>::max());
  reader.RefuseOtherKeys();
  if (offsets.size() == 2 && offsets[1] > data_bytes) {
    errors.Add(absl::StrCat(
        "the file is cut off: tensor \"", name, "\" ends at byte ", offsets[1],
        " of the tensors' bytes, of which there are ", data_bytes));
    offsets = {0, 0};
  }
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    errors.Add(absl::StrCat("the data_offsets of tensor \"", name,
                            "\" are not a begin and an end"));
    offsets = {0, 0};
  }
  const std::optional<int64_t> elements = NumElements(view.shape);
  const auto width = static_cast<int64_t>(SizeOf(view.type));
  if (!elements || *elements * width != offsets[1] - offsets[0]) {
    errors.Add(absl::StrCat("tensor \"", name, "\" has ",
                            offsets[1] - offsets[0],
                            " bytes, which is not what its shape takes"));
  }
  return {std::move(view), Extent{offsets[0], offsets[1], name}};
}

void CheckExtents(std::vector<Extent> extents, int64_t data_bytes,
                  FirstError& errors) {
  std::sort(extents.begin(), extents.end());
  int64_t end = 0;
  for (const Extent& extent : extents) {
    if (extent.begin < end) {
      errors.Add(
          absl::StrCat("tensor \"", extent.name, "\" overlaps another one"));
    } else if (extent.begin > end) {
      errors.Add(absl::StrCat("the ", extent.begin - end,
                              " bytes before tensor \"", extent.name,
                              "\" belong to no tensor"));
    }
    end = extent.end;
  }
  if (end != data_bytes) {
    errors.Add(absl::StrCat("the last ", data_bytes - end,
                            " bytes belong to no tensor"));
  }
}

// The header's text, or an error if the file is too short for it.
absl::StatusOr<std::string_view> HeaderText(std::span<const std::byte> file,
                                            const std::string& file_name) {
  if (file.size() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": ", file.size(),
                     " bytes are too few for a safetensors file"));
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes || length > file.size() - kLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        file_name, ": is said to have a header of ", length,
        " bytes, which does not fit into a file of ", file.size(), " bytes"));
  }
  return std::string_view(
      reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
}

}  // namespace

absl::StatusOr<TensorMap> ParseSafetensors(std::span<const std::byte> file,
                                           const std::string& file_name) {
  const absl::StatusOr<std::string_view> text = HeaderText(file, file_name);
  if (!text.ok()) return text.status();
  const absl::StatusOr<nlohmann::json> header =
      ParseStrictJson(*text, file_name);
  if (!header.ok()) return header.status();
  const std::span<const std::byte> data =
      file.subspan(kLengthBytes + text->size());
  const auto data_bytes = static_cast<int64_t>(data.size());

  FirstError errors(file_name);
  if (!header->is_object()) errors.Add("the header is not a JSON object");
  TensorMap tensors;
  std::vector<Extent> extents;
  for (const auto& item : header->items()) {
    // Free text for people; nothing here depends on it.
    if (item.key() == "__metadata__") continue;
    auto [view, extent] =
        ReadEntry(item.key(), item.value(), data_bytes, errors);
    if (!errors.status().ok()) return errors.status();
    view.data = data.data() + extent.begin;
    tensors.emplace(item.key(), std::move(view));
    extents.push_back(std::move(extent));
  }
  if (errors.status().ok()) {
    CheckExtents(std::move(extents), data_bytes, errors);
  }
  if (!errors.status().ok()) return errors.status();
  return tensors;
}

}  // namespace flash

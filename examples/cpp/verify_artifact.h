// Verifies that a farm that you trust compiled an artifact, and takes its library from the verified bytes.
//
// The artifact's envelope (DSSE) lies beside it, as NAME.tunefarm.intoto.jsonl; its payload is a statement of in-toto with the artifact's
// SHA-256. The file of public keys is what `tunefarm signing list --output FILE` writes. Needs OpenSSL's libcrypto.

#ifndef VERIFY_ARTIFACT_H_
#define VERIFY_ARTIFACT_H_

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <tvm/ffi/extra/json.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

namespace verify {

namespace json = tvm::ffi::json;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

constexpr size_t kMaxEnvelopeBytes = 4 << 20;
constexpr int kMaxDepth = 64;

[[noreturn]] inline void Refuse(const std::string& code, const std::string& why) {
  throw std::runtime_error(why + " (" + code + ")");
}

inline std::string ReadFile(const std::string& path, const std::string& code, size_t limit) {
  std::ifstream file(path, std::ios::binary);
  if (!file) Refuse(code, path + " cannot be read");
  std::string data{std::istreambuf_iterator<char>(file), {}};
  if (data.size() > limit) Refuse(code, path + " is larger than " + std::to_string(limit) + " bytes");
  return data;
}

inline std::string Sha256(const void* data, size_t size) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  if (EVP_Digest(data, size, digest, &length, EVP_sha256(), nullptr) != 1) throw std::runtime_error("SHA-256 failed");
  static const char* kDigits = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < length; ++i) text += {kDigits[digest[i] >> 4], kDigits[digest[i] & 15]};
  return text;
}

// The trusted keys by their id, which is the SHA-256 of the key's DER form.
inline std::map<std::string, Key> ReadKeys(const std::string& path) {
  const std::string text = ReadFile(path, "bad-verify-key", 1 << 20);
  if (text.find("PRIVATE KEY-----") != std::string::npos) {
    Refuse("bad-verify-key", path + " holds a private key, not a public key");
  }
  std::map<std::string, Key> keys;
  std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free);
  while (EVP_PKEY* loaded = PEM_read_bio_PUBKEY(bio.get(), nullptr, nullptr, nullptr)) {
    Key key(loaded, EVP_PKEY_free);
    if (EVP_PKEY_id(key.get()) != EVP_PKEY_ED25519) Refuse("bad-verify-key", path + " holds a key of another kind than Ed25519");
    unsigned char* der = nullptr;
    const int size = i2d_PUBKEY(key.get(), &der);
    if (size <= 0) Refuse("bad-verify-key", path + " holds a key that cannot be read");
    const std::string id = Sha256(der, static_cast<size_t>(size));
    OPENSSL_free(der);
    keys.emplace(id, std::move(key));
  }
  if (keys.empty()) Refuse("bad-verify-key", path + " holds no public key");
  return keys;
}

inline std::string DecodeBase64(const std::string& text) {
  std::string data(text.size() / 4 * 3 + 3, '\0');
  const int size = text.size() > kMaxEnvelopeBytes || text.size() % 4
                       ? -1
                       : EVP_DecodeBlock(reinterpret_cast<unsigned char*>(data.data()),
                                         reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  if (size < 0) throw std::runtime_error("no base64");
  const size_t padding = text.empty() ? 0 : (text.back() == '=') + (text.size() > 1 && text[text.size() - 2] == '=');
  data.resize(static_cast<size_t>(size) - padding);
  return data;
}

// The parser calls itself for each level, and nobody has signed the envelope yet.
inline json::Object ParseObject(const std::string& text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      depth += (text[i] == '{' || text[i] == '[') - (text[i] == '}' || text[i] == ']');
      if (depth > kMaxDepth) throw std::runtime_error("JSON of too many levels");
    }
  }
  return json::Parse(text).cast<json::Object>();
}

inline std::string Text(const json::Object& object, const char* name) {
  return std::string(object.at(tvm::ffi::String(name)).cast<tvm::ffi::String>());
}

inline json::Object Part(const json::Object& object, const char* name) {
  return object.at(tvm::ffi::String(name)).cast<json::Object>();
}

inline json::Array Items(const json::Object& object, const char* name) {
  return object.at(tvm::ffi::String(name)).cast<json::Array>();
}

inline bool Fits(EVP_PKEY* key, const std::string& signature, const std::string& message) {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  return EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key) == 1 &&
         EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()), signature.size(),
                          reinterpret_cast<const unsigned char*>(message.data()), message.size()) == 1;
}

// Returns the envelope's payload, if one of the keys signed it.
inline std::string OpenEnvelope(const std::string& path, const std::map<std::string, Key>& keys) {
  std::string type, payload;
  std::map<std::string, std::string> signatures;
  if (!std::ifstream(path)) Refuse("no-envelope", "the artifact is not verified: there is no " + path);
  const std::string text = ReadFile(path, "bad-envelope", kMaxEnvelopeBytes);
  try {
    const json::Object envelope = ParseObject(text);
    type = Text(envelope, "payloadType");
    payload = DecodeBase64(Text(envelope, "payload"));
    for (const json::Value& item : Items(envelope, "signatures")) {
      const auto signature = item.cast<json::Object>();
      const bool is_first = signatures.emplace(Text(signature, "keyid"), DecodeBase64(Text(signature, "sig"))).second;
      if (!is_first) throw std::runtime_error("two signatures of one key");
    }
  } catch (const std::exception&) {
    Refuse("bad-envelope", path + " is no envelope of a signed statement");
  }
  const std::string message = "DSSEv1 " + std::to_string(type.size()) + " " + type + " " + std::to_string(payload.size()) + " " + payload;
  bool known = false;
  for (const auto& [id, signature] : signatures) {
    const auto key = keys.find(id);
    if (key == keys.end()) continue;
    known = true;
    if (!Fits(key->second.get(), signature, message)) continue;
    if (type != "application/vnd.in-toto+json") Refuse("wrong-predicate", path + " does not hold a statement of in-toto");
    return payload;
  }
  if (!known) Refuse("unknown-key", path + " is signed with a key that you do not trust");
  Refuse("bad-signature", "the signature in " + path + " does not fit what it signs");
}

// Returns the bytes of an artifact, if the envelope beside it says that the farm compiled exactly these.
inline std::string ReadVerified(const std::string& artifact, const std::string& key_file) {
  const std::string beside = artifact + ".intoto.jsonl";
  const std::string payload = OpenEnvelope(beside, ReadKeys(key_file));
  bool compiled = false;
  json::Array subjects;
  try {
    const json::Object statement = ParseObject(payload);
    compiled = Text(statement, "_type") == "https://in-toto.io/Statement/v1" &&
               Text(statement, "predicateType") == "https://slsa.dev/provenance/v1" &&
               Text(Part(Part(statement, "predicate"), "buildDefinition"), "buildType") == "urn:tunefarm:compile:v1";
    subjects = Items(statement, "subject");
  } catch (const std::exception&) {
  }
  if (!compiled) Refuse("wrong-predicate", beside + " is signed, but states something else");
  std::string data = ReadFile(artifact, "not-an-artifact", SIZE_MAX);
  const std::string sha256 = Sha256(data.data(), data.size());
  for (const json::Value& item : subjects) {
    if (Text(Part(item.cast<json::Object>(), "digest"), "sha256") == sha256) return data;
  }
  Refuse("wrong-subject", beside + " is signed, but is of another file than " + artifact);
}

// Returns the library in an artifact, which is a zip file that stores it without compression.
inline std::string LibraryIn(const std::string& zip) {
  const auto number = [&zip](size_t at, int bytes) {
    if (at + bytes > zip.size()) Refuse("damaged-artifact", "the artifact is no zip file");
    uint64_t value = 0;
    while (bytes--) value = value << 8 | static_cast<unsigned char>(zip[at + bytes]);
    return value;
  };
  const size_t end = zip.rfind("PK\5\6");
  if (end == std::string::npos) Refuse("damaged-artifact", "the artifact is no zip file");
  size_t at = number(end + 16, 4);
  for (uint64_t left = number(end + 10, 2); left > 0; --left) {
    const uint64_t name = number(at + 28, 2);
    if (zip.compare(at + 46, name, "lib.so") == 0) {
      const uint64_t size = number(at + 24, 4), local = number(at + 42, 4);
      if (number(at + 10, 2) != 0 || size == UINT32_MAX) Refuse("damaged-artifact", "lib.so is compressed, or larger than 4 GB");
      const uint64_t start = local + 30 + number(local + 26, 2) + number(local + 28, 2);
      if (start + size > zip.size()) Refuse("damaged-artifact", "lib.so is not whole");
      return zip.substr(start, size);
    }
    at += 46 + name + number(at + 30, 2) + number(at + 32, 2);
  }
  Refuse("damaged-artifact", "the artifact has no lib.so");
}

}  // namespace verify

#endif  // VERIFY_ARTIFACT_H_

// SPDX-License-Identifier: Apache-2.0
// Empty: the tests share the library's precompiled headers, which this file makes
// (tests/CMakeLists.txt).

#include "proto/image/plane_form.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(PlaneFormTest, ChromaIsHalvedAndRoundedUp) {
  const PlaneForm both{7, 5, ChromaSampling::k420};
  EXPECT_EQ(both.planes(), 3);
  EXPECT_EQ(both.plane_width(0), 7u);
  EXPECT_EQ(both.plane_height(0), 5u);
  EXPECT_EQ(both.plane_width(2), 4u);
  EXPECT_EQ(both.plane_height(2), 3u);
  const PlaneForm across{7, 5, ChromaSampling::k422};
  EXPECT_EQ(across.plane_width(1), 4u);
  EXPECT_EQ(across.plane_height(1), 5u);
  const PlaneForm none{7, 5, ChromaSampling::k444};
  EXPECT_EQ(none.plane_width(1), 7u);
  EXPECT_EQ(none.plane_height(1), 5u);
  EXPECT_EQ((PlaneForm{7, 5, ChromaSampling::kGrey}).planes(), 1);
}

TEST(PlaneFormTest, LaysPlanesOneAfterTheOther) {
  const PlaneLayout layout = LayOutPlanes({130, 3, ChromaSampling::k420});
  EXPECT_EQ(layout.pitch[0], 192u);
  EXPECT_EQ(layout.pitch[1], 128u);
  EXPECT_EQ(layout.pitch[2], 128u);
  EXPECT_EQ(layout.offset[0], 0u);
  EXPECT_EQ(layout.offset[1], 192u * 3);
  EXPECT_EQ(layout.offset[2], 192u * 3 + 128u * 2);
  EXPECT_EQ(layout.bytes, 192u * 3 + 128u * 4);
  EXPECT_EQ(LayOutPlanes({130, 3, ChromaSampling::kGrey}).bytes, 192u * 3);
}

}  // namespace
}  // namespace ballast

//! The one safety rule of the unreplicated store, weakened on purpose.

caught! { "unreplicated",
    a_write_that_is_executed_before_it_is_durable: "now/Durable", of 1, at 5;
}

"""CoAP: types are resources whose path is their code, subscriptions are observations, values are CBOR."""
